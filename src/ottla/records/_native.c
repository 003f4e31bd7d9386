/* The records of one batch of format 2, walked without a copy; `ottla.records.structure` says what the answers mean.
 *
 *     length | attributes int8 | timestamp delta varlong | offset delta varint
 *            | key length, key | value length, value | header count { key length, key | value length, value }
 *
 * `Walk` can stop at any byte and go on with the next chunk, so that what a codec unpacks is never held as a whole.
 * Nothing is allocated per record, no byte outside the chunk is read, and no value that was read is used as an index.
 * `ottla.records.structure_twin` does the same in Python; a test holds the two equal.
 */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#define INTERFACE 1           /* incremented when names, arguments or answers change */
#define MAX_FAULTS 1024       /* faulty records that are named, each */
#define RELEASE_GIL_BYTES 16384

enum problem {
    SOUND = 0,
    LENGTH = 1,          /* a record's length is negative */
    VARINT = 2,          /* a varint is too long for its type */
    OFFSET = 3,          /* an offset delta is not the record's number */
    FIELD = 4,           /* a field reaches past the end of its record */
    HEADERS = 5,         /* a count of headers is negative, or more than the record has room for */
    HEADER_KEY = 6,      /* a header without a key */
    REST_OF_RECORD = 7,  /* bytes are left in a record after its headers */
    REST_OF_BATCH = 8,   /* bytes are left after the last record */
    ENDS_EARLY = 9       /* the batch ends before its last record does */
};

enum fault { NO_KEY = 1, TIMESTAMP = 2 };

typedef struct {
    /* what is expected */
    uint32_t count;
    int64_t base_timestamp, earliest, latest;
    int needs_key;
    /* where it stands */
    int step;
    int shift;           /* of a varint that a chunk has cut */
    uint64_t bits;
    int64_t left;        /* bytes of this record that are to come */
    int64_t skip;        /* bytes of this field that are to come */
    int32_t headers;     /* that are to come */
    /* what was found */
    int problem;
    uint32_t done;       /* whole records; the number of the faulty one if there is a problem */
    int64_t max_timestamp;
    uint32_t faults;
    uint32_t fault_record[MAX_FAULTS];
    uint8_t fault_kind[MAX_FAULTS];
} Walk;

static void
walk_begin(Walk *w, uint32_t count, int64_t base_timestamp, int64_t earliest, int64_t latest, int needs_key)
{
    w->count = count;
    w->base_timestamp = base_timestamp;
    w->earliest = earliest;
    w->latest = latest;
    w->needs_key = needs_key;
    w->step = w->shift = 0;
    w->bits = 0;
    w->left = w->skip = 0;
    w->headers = 0;
    w->problem = SOUND;
    w->done = 0;
    w->max_timestamp = -1;
    w->faults = 0;
}

static void
note_fault(Walk *w, int kind)
{
    if (w->faults < MAX_FAULTS) {
        w->fault_record[w->faults] = w->done;
        w->fault_kind[w->faults] = (uint8_t)kind;
    }
    w->faults++;
}

enum { WHOLE, CUT, TOO_LONG };

/* A varint of at most `width` bits, which may have begun in an earlier chunk. */
static int
read_varint(Walk *w, const uint8_t **at, const uint8_t *end, int width, int64_t *value)
{
    const uint8_t *p = *at;
    uint64_t bits = w->bits;
    int shift = w->shift;
    while (p < end) {
        uint8_t byte = *p++;
        if (shift + 7 > width && (byte >> (width - shift)) != 0)
            return TOO_LONG;
        bits |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = (int64_t)(bits >> 1) ^ -(int64_t)(bits & 1);
            w->left -= p - *at;
            w->bits = 0;
            w->shift = 0;
            *at = p;
            return WHOLE;
        }
        shift += 7;
    }
    w->left -= p - *at;
    w->bits = bits;
    w->shift = shift;
    *at = p;
    return CUT;
}

#define AFTER_THE_LAST (-1)
#define FAIL(which) do { w->problem = (which); return; } while (0)

/* Each READ and SKIP is a place to come back to: `step` is its line. */
#define READ(width, value) \
    w->step = __LINE__; /* fall through */ \
    case __LINE__: \
        if (w->shift == 0 && p < end && *p < 0x80) { \
            (value) = (int64_t)(*p >> 1) ^ -(int64_t)(*p & 1); \
            p++; \
            w->left--; \
        } else { \
            int how = read_varint(w, &p, end, (width), &(value)); \
            if (how == CUT) return; \
            if (how == TOO_LONG) FAIL(VARINT); \
        }

#define SKIP(length) \
    if ((length) > w->left) FAIL(FIELD); \
    w->skip = (length) > 0 ? (length) : 0; \
    w->left -= w->skip; \
    w->step = __LINE__; /* fall through */ \
    case __LINE__: \
        if (w->skip > end - p) { w->skip -= end - p; return; } \
        p += w->skip;

static void
walk_on(Walk *w, const uint8_t *p, const uint8_t *end)
{
    int64_t value = 0;
    if (w->problem)
        return;
    switch (w->step) {
    case 0:
        while (w->done < w->count) {
            READ(32, value)
            if (value < 0) FAIL(LENGTH);
            w->left = value;
            SKIP(1) /* attributes, of which none is used */
            READ(64, value)
            {
                int64_t timestamp = (int64_t)((uint64_t)w->base_timestamp + (uint64_t)value);
                if (timestamp > w->max_timestamp) w->max_timestamp = timestamp;
                /* kept until the key is known: a record is named once, for its key first */
                w->headers = timestamp != -1 && (timestamp < w->earliest || timestamp > w->latest);
            }
            READ(32, value)
            if (value != (int64_t)w->done) FAIL(OFFSET);
            READ(32, value)
            if (w->left < 0) FAIL(FIELD);
            if (value < 0 && w->needs_key)
                note_fault(w, NO_KEY);
            else if (w->headers)
                note_fault(w, TIMESTAMP);
            SKIP(value)
            READ(32, value)
            if (w->left < 0) FAIL(FIELD);
            SKIP(value)
            READ(32, value)
            if (w->left < 0) FAIL(FIELD);
            if (value < 0 || value > w->left) FAIL(HEADERS);
            w->headers = (int32_t)value;
            while (w->headers > 0) {
                READ(32, value)
                if (w->left < 0) FAIL(FIELD);
                if (value < 0) FAIL(HEADER_KEY);
                SKIP(value)
                READ(32, value)
                if (w->left < 0) FAIL(FIELD);
                SKIP(value)
                w->headers--;
            }
            if (w->left != 0) FAIL(REST_OF_RECORD);
            w->done++;
        }
        w->step = AFTER_THE_LAST; /* fall through */
    case AFTER_THE_LAST:
        if (p < end) FAIL(REST_OF_BATCH);
    }
}

static void
walk_end(Walk *w)
{
    if (!w->problem && w->done < w->count)
        w->problem = ENDS_EARLY;
}

/* problem, record, largest timestamp, number of faults, ((record, kind), ...) */
static PyObject *
findings(const Walk *w)
{
    uint32_t named = w->faults < MAX_FAULTS ? w->faults : MAX_FAULTS;
    PyObject *faults = PyTuple_New((Py_ssize_t)named);
    if (faults == NULL)
        return NULL;
    for (uint32_t i = 0; i < named; i++) {
        PyObject *fault = Py_BuildValue("(Ii)", (unsigned int)w->fault_record[i], (int)w->fault_kind[i]);
        if (fault == NULL || PyTuple_SetItem(faults, (Py_ssize_t)i, fault) < 0) {
            Py_DECREF(faults);
            return NULL;
        }
    }
    return Py_BuildValue("(iILIN)", w->problem, (unsigned int)w->done, (long long)w->max_timestamp,
                         (unsigned int)w->faults, faults);
}

static void
walk_buffer(Walk *w, const Py_buffer *view)
{
    const uint8_t *start = view->buf;
    if (view->len > RELEASE_GIL_BYTES) {
        Py_BEGIN_ALLOW_THREADS
        walk_on(w, start, start + view->len);
        Py_END_ALLOW_THREADS
    } else if (view->len > 0) {
        walk_on(w, start, start + view->len);
    }
}

static int
count_of(long long given, uint32_t *count)
{
    if (given < 0 || given > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a count of records is 0 to 2147483647");
        return -1;
    }
    *count = (uint32_t)given;
    return 0;
}

static PyObject *
scan(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer view;
    long long given, base_timestamp, earliest, latest;
    int needs_key;
    uint32_t count;
    Walk walk;
    if (!PyArg_ParseTuple(args, "y*LLLLp:scan", &view, &given, &base_timestamp, &earliest, &latest, &needs_key))
        return NULL;
    if (count_of(given, &count) < 0) {
        PyBuffer_Release(&view);
        return NULL;
    }
    walk_begin(&walk, count, base_timestamp, earliest, latest, needs_key);
    walk_buffer(&walk, &view);
    PyBuffer_Release(&view);
    walk_end(&walk);
    return findings(&walk);
}

typedef struct {
    PyObject_HEAD
    int busy;
    Walk walk;
} Scanner;

static PyObject *
scanner_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    long long given, base_timestamp, earliest, latest;
    int needs_key;
    uint32_t count;
    Scanner *self;
    if (kwargs != NULL && PyDict_Size(kwargs) > 0) {
        PyErr_SetString(PyExc_TypeError, "Scanner takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "LLLLp:Scanner", &given, &base_timestamp, &earliest, &latest, &needs_key))
        return NULL;
    if (count_of(given, &count) < 0)
        return NULL;
    self = (Scanner *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (self == NULL)
        return NULL;
    self->busy = 0;
    walk_begin(&self->walk, count, base_timestamp, earliest, latest, needs_key);
    return (PyObject *)self;
}

static void
scanner_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *
scanner_feed(PyObject *object, PyObject *chunk)
{
    Scanner *self = (Scanner *)object;
    Py_buffer view;
    if (self->busy) {
        PyErr_SetString(PyExc_RuntimeError, "another thread is feeding this scanner");
        return NULL;
    }
    if (PyObject_GetBuffer(chunk, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    self->busy = 1;
    walk_buffer(&self->walk, &view);
    self->busy = 0;
    PyBuffer_Release(&view);
    return PyBool_FromLong(self->walk.problem == SOUND);
}

static PyObject *
scanner_finish(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Scanner *self = (Scanner *)object;
    if (self->busy) {
        PyErr_SetString(PyExc_RuntimeError, "another thread is feeding this scanner");
        return NULL;
    }
    walk_end(&self->walk);
    return findings(&self->walk);
}

static PyMethodDef scanner_methods[] = {
    {"feed", scanner_feed, METH_O, "Walk the next chunk; False once there is a problem."},
    {"finish", scanner_finish, METH_NOARGS, "What was found: as `scan`."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot scanner_slots[] = {
    {Py_tp_doc, "Walks the records of a batch chunk by chunk; arguments and answers are those of `scan`."},
    {Py_tp_new, scanner_new},
    {Py_tp_dealloc, scanner_dealloc},
    {Py_tp_methods, scanner_methods},
    {0, NULL},
};

static PyType_Spec scanner_spec = {"ottla.records._native.Scanner", sizeof(Scanner), 0, Py_TPFLAGS_DEFAULT,
                                   scanner_slots};

static PyMethodDef functions[] = {
    {"scan", scan, METH_VARARGS, "Walk all records of a batch."},
    {NULL, NULL, 0, NULL},
};

static int
fill_module(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&scanner_spec);
    int failed = type == NULL || PyModule_AddObjectRef(module, "Scanner", type) < 0;
    Py_XDECREF(type);
    return failed || PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) < 0 ? -1 : 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, fill_module}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_native", "The walk over a batch's records, in C.", 0, functions, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
