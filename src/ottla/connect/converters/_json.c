/* Structs out of JSON as Kafka's JsonConverter writes it, by their schema; `ottla.connect.converters.json_readers`
 * makes the readers and says what stands in for them.
 *
 *     head {"field":value,"field":value,...} }
 *
 * A reader knows the bytes of every field's name and in which order they come. Whatever is written otherwise (spaces,
 * another order, a field that lacks, an escape by number, a number that is beyond 64 bits) it refuses, and the slower
 * reader decides. It takes nothing that the slower one refuses. A text is looked at once, no byte behind its end is read,
 * and nothing recurses deeper than MAX_DEPTH.
 */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define INTERFACE 1   /* incremented when names, arguments or answers change */
#define MAX_DEPTH 64
#define MAX_DIGITS 18 /* of a whole number; 64 bits hold all of those */

enum kind {
    SKIPPED = 0, /* must be JSON, and is not read */
    INTEGER = 1, /* from low to high */
    FLOAT = 2,
    BOOLEAN = 3,
    STRING = 4,
    STRUCT = 5,  /* by another reader */
    PLAIN = 6,   /* a text or a whole number, of which a function makes the value */
    BYTES = 7,   /* any JSON, of whose bytes a function makes the value */
    DECIMAL = 8, /* as PLAIN, with `low` digits after the point: most are made here */
    TIMESTAMP = 9 /* as PLAIN, milliseconds since 1970: those of four-digit years are made here */
};

typedef struct {
    PyObject *name, *label, *with, *null;
    const char *label_at; /* the field's name with quotes and colon: the bytes of `label` */
    Py_ssize_t label_length;
    long kind;
    int64_t low, high;
} Field;

typedef struct {
    PyObject_HEAD
    PyObject *blank; /* a dict with every name that is read, in their order: copied, it has its size at once */
    Py_ssize_t count;
    Field *fields;
} Reader;

typedef struct {
    const char *at, *end;
} Text;

static PyObject *decimal_type, *datetime_type, *utc; /* of Python's modules; the same for all readers */

static PyObject *read_struct(Reader *reader, Text *text, int depth);
static int skip(Text *text, int depth);

static int
take(Text *text, const char *expected, Py_ssize_t length)
{
    if (text->end - text->at < length || memcmp(text->at, expected, (size_t)length) != 0) {
        return 0;
    }
    text->at += length;
    return 1;
}

static int
take_one(Text *text, char expected)
{
    if (text->at == text->end || *text->at != expected) {
        return 0;
    }
    text->at++;
    return 1;
}

static int
is_digit(const Text *text)
{
    return text->at < text->end && *text->at >= '0' && *text->at <= '9';
}

static int
digits(Text *text)
{
    if (!is_digit(text)) {
        return 0;
    }
    while (is_digit(text)) {
        text->at++;
    }
    return 1;
}

/* Steps over a number by JSON's grammar; `whole`: it has no point and no exponent. */
static int
skip_number(Text *text, int *whole)
{
    take_one(text, '-');
    if (!take_one(text, '0') && !digits(text)) {
        return 0;
    }
    *whole = 1;
    if (take_one(text, '.')) {
        *whole = 0;
        if (!digits(text)) {
            return 0;
        }
    }
    if (take_one(text, 'e') || take_one(text, 'E')) {
        *whole = 0;
        if (!take_one(text, '+')) {
            take_one(text, '-');
        }
        return digits(text);
    }
    return 1;
}

static int
read_int64(Text *text, int64_t *value)
{
    const char *from = text->at;
    int whole;
    if (!skip_number(text, &whole) || !whole) {
        return 0;
    }
    int negative = *from == '-';
    from += negative;
    if (text->at - from > MAX_DIGITS) {
        return 0;
    }
    int64_t found = 0;
    for (; from < text->at; from++) {
        found = found * 10 + (*from - '0');
    }
    *value = negative ? -found : found;
    return 1;
}

static PyObject *
read_float(Text *text)
{
    char copy[64]; /* the parser looks for a NUL at the end */
    const char *from = text->at;
    int whole;
    if (!skip_number(text, &whole)) {
        return NULL;
    }
    size_t length = (size_t)(text->at - from);
    if (length >= sizeof copy) {
        return NULL;
    }
    memcpy(copy, from, length);
    copy[length] = 0;
    char *end;
    double value = PyOS_string_to_double(copy, &end, NULL);
    if (end != copy + length || !isfinite(value) || (whole && value == 0 && signbit(value))) {
        return NULL; /* "-0" is a whole number, and has no sign */
    }
    return PyFloat_FromDouble(value);
}

/* Finds the end of a text whose first quote has been taken, and takes its last one. */
static int
end_of_string(Text *text, const char **end, int *escaped, int *ascii)
{
    *escaped = 0;
    unsigned char high = 0;
    while (text->at < text->end) {
        unsigned char each = (unsigned char)*text->at;
        if (each == '"') {
            *end = text->at++;
            *ascii = high < 0x80;
            return 1;
        }
        if (each < 0x20) {
            return 0;
        }
        high |= each;
        if (each == '\\') {
            *escaped = 1;
            if (++text->at == text->end) {
                return 0;
            }
            high |= (unsigned char)*text->at;
        }
        text->at++;
    }
    return 0;
}

static PyObject *
unescaped(const char *from, const char *end)
{
    char *made = PyMem_Malloc((size_t)(end - from));
    if (made == NULL) {
        return PyErr_NoMemory();
    }
    static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    char *to = made;
    PyObject *value = NULL;
    for (; from < end; from++) {
        if (*from != '\\') {
            *to++ = *from;
            continue;
        }
        const char *found = memchr(escapes, *++from, sizeof escapes - 1); /* a text never ends with a lone backslash */
        if (found == NULL) {
            goto done;
        }
        *to++ = meant[found - escapes];
    }
    value = PyUnicode_DecodeUTF8(made, to - made, NULL);
done:
    PyMem_Free(made);
    return value;
}

static PyObject *
read_string(Text *text)
{
    const char *end;
    int escaped, ascii;
    if (!take_one(text, '"')) {
        return NULL;
    }
    const char *from = text->at;
    if (!end_of_string(text, &end, &escaped, &ascii)) {
        return NULL;
    }
    return escaped ? unescaped(from, end) : PyUnicode_DecodeUTF8(from, end - from, NULL);
}

static int
skip_string(Text *text)
{
    const char *end;
    int escaped, ascii;
    if (!take_one(text, '"')) {
        return 0;
    }
    const char *from = text->at;
    if (!end_of_string(text, &end, &escaped, &ascii)) {
        return 0;
    }
    if (!escaped && ascii) {
        return 1;
    }
    PyObject *value = escaped ? unescaped(from, end) : PyUnicode_DecodeUTF8(from, end - from, NULL);
    Py_XDECREF(value);
    return value != NULL;
}

static int
skip_many(Text *text, int depth, char close, int named)
{
    text->at++;
    if (take_one(text, close)) {
        return 1;
    }
    do {
        if (named && !(skip_string(text) && take_one(text, ':'))) {
            return 0;
        }
        if (!skip(text, depth + 1)) {
            return 0;
        }
    } while (take_one(text, ','));
    return take_one(text, close);
}

/* Steps over any JSON. */
static int
skip(Text *text, int depth)
{
    int whole;
    if (text->at == text->end || depth > MAX_DEPTH) {
        return 0;
    }
    switch (*text->at) {
    case '"':
        return skip_string(text);
    case '{':
        return skip_many(text, depth, '}', 1);
    case '[':
        return skip_many(text, depth, ']', 0);
    case 'n':
        return take(text, "null", 4);
    case 't':
        return take(text, "true", 4);
    case 'f':
        return take(text, "false", 5);
    default:
        return skip_number(text, &whole);
    }
}

static int
sextet(char each)
{
    return each >= 'A' && each <= 'Z'   ? each - 'A'
           : each >= 'a' && each <= 'z' ? each - 'a' + 26
           : each >= '0' && each <= '9' ? each - '0' + 52
           : each == '+'                ? 62
           : each == '/'                ? 63
                                        : -1;
}

/* A Decimal of a text of up to six bytes in Base64; NULL without an exception: of another one, or of none. */
static PyObject *
read_decimal(Text *text, int64_t scale)
{
    const char *from = text->at, *end;
    int escaped, ascii, bits = 0;
    if (!take_one(text, '"') || !end_of_string(text, &end, &escaped, &ascii) || end - ++from > 8 || end == from ||
        (end - from) % 4) {
        return NULL;
    }
    uint64_t unscaled = 0;
    int padding = end[-1] == '=' ? 1 + (end[-2] == '=') : 0;
    for (; from < end - padding; from++) {
        int six = sextet(*from);
        if (six < 0) {
            return NULL;
        }
        unscaled = unscaled << 6 | (unsigned)six;
        bits += 6;
    }
    unscaled >>= bits % 8; /* which no encoder sets, and no decoder looks at */
    bits -= bits % 8;
    int64_t value = (int64_t)unscaled - (unscaled >> (bits - 1) & 1 ? (int64_t)1 << bits : 0);
    char written[64];
    snprintf(written, sizeof written, "%lldE%lld", (long long)value, -(long long)scale);
    return PyObject_CallFunction(decimal_type, "s", written);
}

/* The datetime of so many milliseconds since 1970; NULL without an exception: of other years. */
static PyObject *
timestamp(int64_t ms)
{
    if (ms < -30609792000000 || ms > 253370764800000) { /* in the years 1000 to 9998 */
        return NULL;
    }
    int64_t seconds = ms / 1000 - (ms % 1000 < 0), day = seconds / 86400 - (seconds % 86400 < 0);
    int rest = (int)(seconds - day * 86400), us = (int)(ms - seconds * 1000) * 1000;
    /* the civil calendar, of years that begin in March: 719468 days are from 0000-03-01 to 1970 */
    int64_t shifted = day + 719468, era = shifted / 146097, of_era = shifted - era * 146097;
    int64_t year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int64_t of_year = of_era - (365 * year + year / 4 - year / 100), month = (5 * of_year + 2) / 153;
    int date = (int)(of_year - (153 * month + 2) / 5) + 1;
    month = month < 10 ? month + 3 : month - 9;
    int whole_year = (int)(year + era * 400) + (month <= 2);
    return PyObject_CallFunction(datetime_type, "iiiiiiiO", whole_year, (int)month, date, rest / 3600, rest / 60 % 60,
                                 rest % 60, us, utc);
}

/* A value that is not null. NULL: refused, perhaps with an exception. */
static PyObject *
read_value(const Field *field, Text *text, int depth)
{
    int64_t number;
    const char *from = text->at;
    PyObject *plain, *value;
    switch (field->kind) {
    case INTEGER:
        return read_int64(text, &number) && number >= field->low && number <= field->high ? PyLong_FromLongLong(number)
                                                                                            : NULL;
    case FLOAT:
        return read_float(text);
    case BOOLEAN:
        return take(text, "true", 4) ? Py_NewRef(Py_True) : take(text, "false", 5) ? Py_NewRef(Py_False) : NULL;
    case STRING:
        return read_string(text);
    case STRUCT:
        return read_struct((Reader *)field->with, text, depth + 1);
    case DECIMAL:
    case TIMESTAMP:
        value = field->kind == DECIMAL        ? read_decimal(text, field->low)
                : read_int64(text, &number) ? timestamp(number)
                                            : NULL;
        if (value != NULL || PyErr_Occurred()) {
            return value;
        }
        text->at = from;
        /* fall through */
    case PLAIN:
        plain = from < text->end && *from == '"' ? read_string(text)
                : read_int64(text, &number)      ? PyLong_FromLongLong(number)
                                                 : NULL;
        break;
    default:
        plain = skip(text, depth) ? PyBytes_FromStringAndSize(from, text->at - from) : NULL;
    }
    if (plain == NULL) {
        return NULL;
    }
    value = PyObject_CallFunctionObjArgs(field->with, plain, NULL);
    Py_DECREF(plain);
    return value;
}

static PyObject *
read_struct(Reader *reader, Text *text, int depth)
{
    if (depth > MAX_DEPTH || !take_one(text, '{')) {
        return NULL;
    }
    PyObject *made = PyDict_Copy(reader->blank);
    if (made == NULL) {
        return NULL;
    }
    for (Py_ssize_t number = 0; number < reader->count; number++) {
        const Field *field = &reader->fields[number];
        if ((number && !take_one(text, ',')) || !take(text, field->label_at, field->label_length)) {
            goto refused;
        }
        if (field->kind == SKIPPED) {
            if (!skip(text, depth)) {
                goto refused;
            }
            continue;
        }
        PyObject *value;
        if (field->null != NULL && take(text, "null", 4)) {
            value = Py_NewRef(field->null);
        } else {
            value = read_value(field, text, depth);
        }
        if (value == NULL) {
            goto refused;
        }
        int failed = PyDict_SetItem(made, field->name, value);
        Py_DECREF(value);
        if (failed) {
            goto refused;
        }
    }
    if (take_one(text, '}')) {
        return made;
    }
refused:
    Py_DECREF(made);
    return NULL;
}

static PyObject *
reader_read(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    char *payload, *head;
    Py_ssize_t length, head_length;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "read takes a payload and its head");
        return NULL;
    }
    if (PyBytes_AsStringAndSize(given[0], &payload, &length) < 0 ||
        PyBytes_AsStringAndSize(given[1], &head, &head_length) < 0) {
        return NULL;
    }
    Text text = {payload, payload + length};
    PyObject *value = take(&text, head, head_length) ? read_struct((Reader *)self, &text, 0) : NULL;
    if (value != NULL && take_one(&text, '}') && text.at == text.end) {
        return value;
    }
    Py_XDECREF(value);
    if (PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_Exception)) {
            return NULL;
        }
        PyErr_Clear(); /* the slower reader raises it again, if it is one */
    }
    return Py_NewRef(Py_None);
}

static void
reader_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    Reader *self = (Reader *)object;
    for (Py_ssize_t number = 0; number < self->count; number++) {
        Field *field = &self->fields[number];
        Py_XDECREF(field->name);
        Py_XDECREF(field->label);
        Py_XDECREF(field->with);
        Py_XDECREF(field->null);
    }
    PyMem_Free(self->fields);
    Py_XDECREF(self->blank);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* From (name, label, kind, low, high, with, (null,) or ()). */
static int
fill_field(Reader *self, Field *field, PyObject *given, PyTypeObject *type)
{
    PyObject *null;
    long long low, high;
    char *label;
    if (!PyTuple_Check(given) || !PyArg_ParseTuple(given, "USlLLOO!", &field->name, &field->label, &field->kind, &low,
                                                   &high, &field->with, &PyTuple_Type, &null)) {
        field->name = field->label = field->with = NULL;
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "a field is a tuple");
        }
        return -1;
    }
    Py_INCREF(field->name);
    Py_INCREF(field->label);
    Py_INCREF(field->with);
    field->null = PyTuple_Size(null) ? Py_NewRef(PyTuple_GetItem(null, 0)) : NULL;
    field->low = low;
    field->high = high;
    PyUnicode_InternInPlace(&field->name);
    if (PyBytes_AsStringAndSize(field->label, &label, &field->label_length) < 0) {
        return -1;
    }
    field->label_at = label;
    if (field->kind < SKIPPED || field->kind > TIMESTAMP ||
        (field->kind == STRUCT && !PyObject_TypeCheck(field->with, type))) {
        PyErr_SetString(PyExc_ValueError, "a field of no known kind");
        return -1;
    }
    return field->kind == SKIPPED ? 0 : PyDict_SetItem(self->blank, field->name, Py_None);
}

static PyObject *
reader_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    PyObject *fields;
    if ((keywords != NULL && PyDict_Size(keywords)) || !PyArg_ParseTuple(arguments, "O!", &PyTuple_Type, &fields)) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "a reader takes a tuple of fields");
        }
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Reader *self = (Reader *)allocate(type, 0);
    if (self == NULL) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_Size(fields);
    self->blank = PyDict_New();
    self->fields = PyMem_Calloc((size_t)(count ? count : 1), sizeof(Field));
    if (self->blank == NULL || self->fields == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    self->count = count;
    for (Py_ssize_t number = 0; number < count; number++) {
        if (fill_field(self, &self->fields[number], PyTuple_GetItem(fields, number), type) < 0) {
            Py_DECREF(self);
            return NULL;
        }
    }
    return (PyObject *)self;
}

static PyMethodDef reader_methods[] = {
    {"read", (PyCFunction)(void (*)(void))reader_read, METH_FASTCALL,
     "The struct of a payload that begins with this head and ends with a brace; None: refused."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot reader_slots[] = {
    {Py_tp_doc, "Reads structs of one schema."},
    {Py_tp_new, reader_new},
    {Py_tp_dealloc, reader_dealloc},
    {Py_tp_methods, reader_methods},
    {0, NULL},
};

static PyType_Spec reader_spec = {"ottla.connect.converters._json.StructReader", sizeof(Reader), 0, Py_TPFLAGS_DEFAULT,
                                  reader_slots};

static PyObject *
imported(const char *module_name, const char *name)
{
    PyObject *module = PyImport_ImportModule(module_name);
    PyObject *found = module == NULL ? NULL : PyObject_GetAttrString(module, name);
    Py_XDECREF(module);
    return found;
}

static int
fill_module(PyObject *module)
{
    decimal_type = imported("decimal", "Decimal");
    datetime_type = imported("datetime", "datetime");
    utc = imported("datetime", "UTC");
    if (decimal_type == NULL || datetime_type == NULL || utc == NULL) {
        return -1;
    }
    PyObject *type = PyType_FromSpec(&reader_spec);
    int failed = type == NULL || PyModule_AddObjectRef(module, "StructReader", type) < 0;
    Py_XDECREF(type);
    return failed || PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) < 0 ? -1 : 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, fill_module}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_json", "Structs out of JSON by their schema, in C.", 0, NULL, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__json(void)
{
    return PyModuleDef_Init(&definition);
}
