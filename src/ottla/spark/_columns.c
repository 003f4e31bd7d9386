/* The records of some batches of format 2 as the buffers of Arrow columns; `ottla.spark.decoding` calls it.
 *
 *     length | attributes int8 | timestamp delta varlong | offset delta varint
 *            | key length, key | value length, value | header count { ... }
 *
 * One pass: each record is read once, its key and its value are copied together. All memory is the caller's, and as
 * large as `decode` asks for; nothing is written behind it, and nothing read outside the payload.
 * `ottla.spark.decoding_twin` does the same in Python; a test holds the two equal.
 */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define INTERFACE 1      /* incremented when names, arguments or answers change */
#define LEAST_RECORD 7   /* bytes of a record without key, value and headers */
#define MICROS 1000      /* per millisecond */

enum problem { SOUND, ENDS_EARLY, REST, NEGATIVE_LENGTH, TOO_LONG, CUT, NEGATIVE_FIELD };

static const char *const TEXTS[] = {
    "",
    "claims more records than it holds",
    "is not filled by its records",
    "has a record with a negative length",
    "has a record that is longer than its declared length",
    "has a record that is cut off",
    "has a key or a value with a negative length",
};

/* A batch as a row of numbers. */
enum { START, END, COUNT, BASE_OFFSET, BASE_TIMESTAMP, MAX_TIMESTAMP, IS_APPEND_TIME, WIDTH };

/* Arrow's binary column: where each element ends, the bytes of all, and a bit for each that is there. */
typedef struct {
    int32_t *bounds;
    uint8_t *bytes;
    uint8_t *valid;
    int64_t nulls;
} Binary;

typedef struct {
    int64_t *offsets;
    int64_t *micros;
    uint8_t *timed;
    int32_t *kinds;
    int64_t *header_at;  /* where a record's headers are counted; -1: it has none */
    Binary key, value;
    int64_t rows, timeless, headed;
} Columns;

typedef struct {
    int64_t timestamp, offset, key_size, value_size, header_at;
    const uint8_t *key, *value;
} Record;

/* A zigzag varint; 0 if it does not end before `end`, or is longer than 64 bits. */
static inline int
varint(const uint8_t **at, const uint8_t *end, int64_t *value)
{
    const uint8_t *p = *at;
    uint64_t bits = 0;
    for (int shift = 0; p < end && shift < 64; shift += 7) {
        uint8_t byte = *p++;
        bits |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = (int64_t)(bits >> 1) ^ -(int64_t)(bits & 1);
            *at = p;
            return 1;
        }
    }
    return 0;
}

/* A length and where its bytes lie; null has the length -1. */
static inline enum problem
field(const uint8_t **at, const uint8_t *end, int64_t *size, const uint8_t **bytes)
{
    if (!varint(at, end, size))
        return CUT;
    if (*size < -1)
        return NEGATIVE_FIELD;
    *bytes = *at;
    if (*size > end - *at)
        return TOO_LONG;
    if (*size > 0)
        *at += *size;
    return SOUND;
}

static enum problem
read_record(const uint8_t *p, const uint8_t *end, const uint8_t *payload, Record *record)
{
    enum problem problem;
    int64_t headers;
    if (p >= end)
        return CUT;
    p++; /* attributes, of which none is used */
    if (!varint(&p, end, &record->timestamp) || !varint(&p, end, &record->offset))
        return CUT;
    if ((problem = field(&p, end, &record->key_size, &record->key)) != SOUND)
        return problem;
    if ((problem = field(&p, end, &record->value_size, &record->value)) != SOUND)
        return problem;
    record->header_at = p - payload;
    if (!varint(&p, end, &headers))
        return CUT;
    if (headers <= 0)
        record->header_at = -1;
    return SOUND;
}

static inline void
append(Binary *column, int64_t row, const uint8_t *bytes, int64_t size)
{
    int32_t begin = column->bounds[row];
    if (size < 0) {
        column->nulls++;
        column->bounds[row + 1] = begin;
        return;
    }
    memcpy(column->bytes + begin, bytes, (size_t)size);
    column->bounds[row + 1] = begin + (int32_t)size;
    column->valid[row >> 3] = (uint8_t)(column->valid[row >> 3] | 1u << (row & 7));
}

static inline void
append_time(Columns *out, int64_t row, int64_t millis, int is_append_time)
{
    if (millis < 0 || millis > INT64_MAX / MICROS - 1) {
        out->micros[row] = 0;
        out->timeless++;
    } else {
        out->micros[row] = millis * MICROS;
        out->timed[row >> 3] = (uint8_t)(out->timed[row >> 3] | 1u << (row & 7));
    }
    out->kinds[row] = millis < 0 ? -1 : is_append_time;
}

/* Takes in the records of a batch with offsets from `first` to `last`. */
static enum problem
read_batch(const uint8_t *payload, const int64_t *batch, int64_t first, int64_t last, Columns *out)
{
    const uint8_t *p = payload + batch[START], *end = payload + batch[END];
    for (int64_t left = batch[COUNT]; left > 0; left--) {
        int64_t size, offset, millis;
        enum problem problem;
        Record record;
        if (!varint(&p, end, &size))
            return ENDS_EARLY;
        if (size < 0)
            return NEGATIVE_LENGTH;
        if (size > end - p)
            return ENDS_EARLY;
        if ((problem = read_record(p, p + size, payload, &record)) != SOUND)
            return problem;
        p += size;
        offset = (int64_t)((uint64_t)batch[BASE_OFFSET] + (uint64_t)record.offset);
        if (offset < first || offset > last)
            continue;
        out->offsets[out->rows] = offset;
        millis = (int64_t)((uint64_t)batch[BASE_TIMESTAMP] + (uint64_t)record.timestamp);
        append_time(out, out->rows, batch[IS_APPEND_TIME] ? batch[MAX_TIMESTAMP] : millis, batch[IS_APPEND_TIME] != 0);
        append(&out->key, out->rows, record.key, record.key_size);
        append(&out->value, out->rows, record.value, record.value_size);
        out->header_at[out->rows] = record.header_at;
        out->headed += record.header_at >= 0;
        out->rows++;
    }
    return p == end ? SOUND : REST;
}

/* How many records the batches have; -1 if a batch lies outside the payload, or claims more than fit into it. */
static int64_t
count_records(const int64_t *batches, Py_ssize_t number, Py_ssize_t payload_size)
{
    int64_t count = 0, begin = 0;
    for (Py_ssize_t i = 0; i < number; i++) {
        const int64_t *batch = batches + i * WIDTH;
        if (batch[START] < begin || batch[END] < batch[START] || batch[END] > payload_size || batch[COUNT] < 0
            || batch[COUNT] > (batch[END] - batch[START]) / LEAST_RECORD)
            return -1;
        begin = batch[END];
        count += batch[COUNT];
    }
    return count;
}

enum { OFFSETS, TIMES, TIMED, KINDS, HEADERS_AT, KEY_BOUNDS, KEYS, KEY_VALID, VALUE_BOUNDS, VALUES, VALUE_VALID, OUTPUTS };

static int
is_roomy(const Py_buffer *outputs, int64_t rows, Py_ssize_t payload_size)
{
    const int64_t needed[OUTPUTS] = {
        8 * rows, 8 * rows, (rows + 7) / 8, 4 * rows, 8 * rows,
        4 * (rows + 1), payload_size, (rows + 7) / 8,
        4 * (rows + 1), payload_size, (rows + 7) / 8,
    };
    for (int i = 0; i < OUTPUTS; i++)
        if (outputs[i].len < needed[i])
            return 0;
    return 1;
}

static PyObject *
run(const Py_buffer *payload, const Py_buffer *batches, long long first, long long last, Py_buffer *outputs)
{
    const Py_ssize_t number = batches->len / (Py_ssize_t)(WIDTH * sizeof(int64_t));
    const int64_t *batch = batches->buf;
    const int64_t rows = payload->len > INT32_MAX ? -1 : count_records(batch, number, payload->len);
    enum problem problem = SOUND;
    Columns out = {
        outputs[OFFSETS].buf, outputs[TIMES].buf, outputs[TIMED].buf, outputs[KINDS].buf, outputs[HEADERS_AT].buf,
        {outputs[KEY_BOUNDS].buf, outputs[KEYS].buf, outputs[KEY_VALID].buf, 0},
        {outputs[VALUE_BOUNDS].buf, outputs[VALUES].buf, outputs[VALUE_VALID].buf, 0}, 0, 0, 0,
    };
    if (rows < 0 || !is_roomy(outputs, rows, payload->len)) {
        PyErr_SetString(PyExc_ValueError, "the batches do not fit into the payload, or the columns into their buffers");
        return NULL;
    }
    out.key.bounds[0] = out.value.bounds[0] = 0;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < number && problem == SOUND; i++, batch += WIDTH)
        problem = read_batch(payload->buf, batch, first, last, &out);
    Py_END_ALLOW_THREADS
    if (problem != SOUND)
        return PyErr_Format(PyExc_ValueError, "the batch at offset %lld %s", (long long)(batch - WIDTH)[BASE_OFFSET],
                            TEXTS[problem]);
    return Py_BuildValue("(LLLLL)", (long long)out.rows, (long long)out.timeless, (long long)out.key.nulls,
                         (long long)out.value.nulls, (long long)out.headed);
}

static PyObject *
decode(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer payload, batches, o[OUTPUTS];
    long long first, last;
    PyObject *found;
    if (!PyArg_ParseTuple(args, "y*y*LLw*w*w*w*w*w*w*w*w*w*w*:decode", &payload, &batches, &first, &last,
                          &o[0], &o[1], &o[2], &o[3], &o[4], &o[5], &o[6], &o[7], &o[8], &o[9], &o[10]))
        return NULL;
    found = run(&payload, &batches, first, last, o);
    for (int i = 0; i < OUTPUTS; i++)
        PyBuffer_Release(&o[i]);
    PyBuffer_Release(&batches);
    PyBuffer_Release(&payload);
    return found;
}

static PyMethodDef functions[] = {
    {"decode", decode, METH_VARARGS, "Fill the buffers of columns with the records of batches."},
    {NULL, NULL, 0, NULL},
};

static int
fill_module(PyObject *module)
{
    return PyModule_AddIntConstant(module, "INTERFACE", INTERFACE);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, fill_module}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_columns", "Records into the buffers of Arrow columns, in C.", 0, functions, slots,
    NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__columns(void)
{
    return PyModuleDef_Init(&definition);
}
