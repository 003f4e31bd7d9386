/* Rows in the text format of PostgreSQL's COPY: see `ottla.connect.connectors.relational.copy_text`, which has the same
 * in Python; a test holds the two equal.
 */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define INTERFACE 1 /* incremented when names, arguments or answers change */
#define FIRST_SIZE 65536

typedef struct {
    char *bytes;
    size_t size, used;
} Made;

/* Room for so many bytes more; NULL and MemoryError: there is none. */
static char *
room(Made *made, size_t more)
{
    if (more > made->size - made->used) {
        if (more > (size_t)PY_SSIZE_T_MAX / 2 - made->size) {
            PyErr_NoMemory();
            return NULL;
        }
        size_t size = 2 * made->size + more;
        char *bytes = PyMem_Realloc(made->bytes, size);
        if (bytes == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        made->bytes = bytes;
        made->size = size;
    }
    return made->bytes + made->used;
}

static int
add(Made *made, const char *bytes, size_t length)
{
    char *to = room(made, length);
    if (to == NULL) {
        return -1;
    }
    memcpy(to, bytes, length);
    made->used += length;
    return 0;
}

static int
add_text(Made *made, PyObject *text, int escape)
{
    Py_ssize_t length;
    const char *from = PyUnicode_AsUTF8AndSize(text, &length);
    if (from == NULL) {
        return -1;
    }
    char *to = room(made, 2 * (size_t)length);
    if (to == NULL) {
        return -1;
    }
    char *began = to;
    for (const char *end = from + length; from < end; from++) {
        char meant = 0;
        switch (escape ? *from : 'x') {
        case '\\': meant = '\\'; break;
        case '\t': meant = 't'; break;
        case '\n': meant = 'n'; break;
        case '\r': meant = 'r'; break;
        default: *to++ = *from; continue;
        }
        *to++ = '\\';
        *to++ = meant;
    }
    made->used += (size_t)(to - began);
    return 0;
}

static int
add_hex(Made *made, PyObject *value)
{
    static const char digits[] = "0123456789abcdef";
    char *from;
    Py_ssize_t length;
    if (PyBytes_AsStringAndSize(value, &from, &length) < 0 || add(made, "\\\\x", 3) < 0) {
        return -1;
    }
    char *to = room(made, 2 * (size_t)length);
    if (to == NULL) {
        return -1;
    }
    for (Py_ssize_t at = 0; at < length; at++) {
        *to++ = digits[(unsigned char)from[at] >> 4];
        *to++ = digits[(unsigned char)from[at] & 15];
    }
    made->used += 2 * (size_t)length;
    return 0;
}

static int
add_float(Made *made, PyObject *value)
{
    char *text = PyOS_double_to_string(PyFloat_AsDouble(value), 'r', 0, Py_DTSF_ADD_DOT_0, NULL);
    if (text == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    int failed = add(made, text, strlen(text));
    PyMem_Free(text);
    return failed;
}

/* By the function of its type, or the one for all others; texts that these return are escaped already. */
static int
add_other(Made *made, PyObject *value, PyObject *texts, PyObject *other)
{
    PyObject *function = PyDict_GetItemWithError(texts, (PyObject *)Py_TYPE(value));
    if (function == NULL) {
        if (PyErr_Occurred()) {
            return -1;
        }
        function = other;
    }
    PyObject *text = PyObject_CallFunctionObjArgs(function, value, NULL);
    if (text == NULL) {
        return -1;
    }
    int failed = add_text(made, text, 0);
    Py_DECREF(text);
    return failed;
}

static int
add_value(Made *made, PyObject *value, PyObject *texts, PyObject *other)
{
    PyTypeObject *type = Py_TYPE(value);
    if (value == Py_None) {
        return add(made, "\\N", 2);
    }
    if (type == &PyUnicode_Type) {
        return add_text(made, value, 1);
    }
    if (type == &PyLong_Type) {
        char digits[24];
        int beyond;
        long long number = PyLong_AsLongLongAndOverflow(value, &beyond);
        if (!beyond) {
            int length = snprintf(digits, sizeof digits, "%lld", number);
            return add(made, digits, (size_t)length);
        }
    }
    if (type == &PyFloat_Type) {
        return add_float(made, value);
    }
    if (value == Py_True || value == Py_False) {
        return add(made, value == Py_True ? "t" : "f", 1);
    }
    if (type == &PyBytes_Type) {
        return add_hex(made, value);
    }
    return add_other(made, value, texts, other);
}

static int
add_rows(Made *made, PyObject *rows, PyObject *texts, PyObject *other)
{
    Py_ssize_t width = -1;
    for (Py_ssize_t number = 0; number < PyList_Size(rows); number++) {
        PyObject *row = Py_NewRef(PyList_GetItem(rows, number));
        int failed = 0;
        if (!PyTuple_Check(row) || (width >= 0 && PyTuple_Size(row) != width)) {
            PyErr_SetString(PyExc_ValueError, "rows are tuples of one length");
            failed = -1;
        }
        width = failed ? width : PyTuple_Size(row);
        for (Py_ssize_t column = 0; !failed && column < width; column++) {
            failed = (column && add(made, "\t", 1) < 0) || add_value(made, PyTuple_GetItem(row, column), texts, other) < 0;
        }
        Py_DECREF(row);
        if (failed || add(made, "\n", 1) < 0) {
            return -1;
        }
    }
    return 0;
}

static PyObject *
copy_bytes(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *rows, *texts, *other;
    if (!PyArg_ParseTuple(arguments, "O!O!O", &PyList_Type, &rows, &PyDict_Type, &texts, &other)) {
        return NULL;
    }
    Made made = {PyMem_Malloc(FIRST_SIZE), FIRST_SIZE, 0};
    if (made.bytes == NULL) {
        return PyErr_NoMemory();
    }
    PyObject *result =
        add_rows(&made, rows, texts, other) < 0 ? NULL : PyBytes_FromStringAndSize(made.bytes, (Py_ssize_t)made.used);
    PyMem_Free(made.bytes);
    return result;
}

static PyMethodDef functions[] = {
    {"copy_bytes", copy_bytes, METH_VARARGS, "All rows, a line each."},
    {NULL, NULL, 0, NULL},
};

static int
fill_module(PyObject *module)
{
    return PyModule_AddIntConstant(module, "INTERFACE", INTERFACE);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, fill_module}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_copy", "Rows in PostgreSQL's text format, in C.", 0, functions, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__copy(void)
{
    return PyModuleDef_Init(&definition);
}
