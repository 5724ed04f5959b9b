/* Where the records of a batch start and end: `record_bounds.py` in one pass.

   A module of Python's stable interface: a call costs a tenth of one through ctypes, and the broker makes one for each
   batch.  It reads nothing outside of the buffer, and accepts exactly what `record_bounds.py` accepts. */

#define Py_LIMITED_API 0x030b0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum { VARINT_BYTES_MAX = 5, VARLONG_BYTES_MAX = 10 };

/* More than the bytes that `short_record` reads before it knows that they are there. */
enum { SHORT_HEAD_BYTES = 128 };

/* An area above this is walked without the interpreter's lock: at five nanoseconds a record others would wait for it. */
enum { UNLOCKED_BYTES_MIN = 1 << 16 };

/* A base timestamp to which every delta of three bytes can be added. */
#define SHORT_DELTAS_FIT(base) ((base) > -((int64_t)1 << 62) && (base) < (int64_t)1 << 62)

static inline int64_t from_zigzag(uint64_t raw) { return (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1); }

/* The place behind the number, or NULL where it is cut off or does not fit its type. */
static const uint8_t *varint(const uint8_t *at, const uint8_t *end, int bytes_max, uint64_t *value)
{
    uint64_t raw = 0;
    for (int index = 0; index < bytes_max; index++) {
        if (at >= end)
            return NULL;
        uint8_t byte = *at++;
        if (index == VARLONG_BYTES_MAX - 1 && byte > 1)
            return NULL;
        raw |= (uint64_t)(byte & 127) << (7 * index);
        if (byte < 128) {
            *value = raw;
            return bytes_max == VARINT_BYTES_MAX && raw >> 32 ? NULL : at;
        }
    }
    return NULL;
}

/* Behind a length (-1 is null, where there may be one) and so many bytes, or NULL. */
static const uint8_t *behind_bytes(const uint8_t *at, const uint8_t *end, int may_be_null)
{
    uint64_t raw;
    at = varint(at, end, VARINT_BYTES_MAX, &raw);
    if (at == NULL)
        return NULL;
    if (raw & 1)
        return raw == 1 && may_be_null ? at : NULL;
    return (int64_t)(raw >> 1) <= end - at ? at + (raw >> 1) : NULL;
}

/* The end of the record, or NULL. */
static const uint8_t *record_end(const uint8_t *at, const uint8_t *area_end, int64_t number, int64_t base_timestamp)
{
    uint64_t raw;
    int64_t timestamp;
    at = varint(at, area_end, VARINT_BYTES_MAX, &raw);
    if (at == NULL || raw & 1 || (int64_t)(raw >> 1) > area_end - at)
        return NULL;
    const uint8_t *end = at + (raw >> 1);
    if (at >= end)
        return NULL;
    at = varint(at + 1, end, VARLONG_BYTES_MAX, &raw); /* behind the attributes */
    if (at == NULL || __builtin_add_overflow(base_timestamp, from_zigzag(raw), &timestamp))
        return NULL;
    at = varint(at, end, VARINT_BYTES_MAX, &raw);
    if (at == NULL || raw != (uint64_t)number << 1)
        return NULL;
    at = behind_bytes(at, end, 1);
    if (at == NULL)
        return NULL;
    at = behind_bytes(at, end, 1);
    if (at == NULL)
        return NULL;
    at = varint(at, end, VARINT_BYTES_MAX, &raw);
    if (at == NULL || raw & 1)
        return NULL;
    for (int64_t left = (int64_t)(raw >> 1); left > 0; left--) {
        at = behind_bytes(at, end, 0); /* a header has a key */
        if (at == NULL)
            return NULL;
        at = behind_bytes(at, end, 1);
        if (at == NULL)
            return NULL;
    }
    return at == end ? end : NULL;
}

/* The same of a common record: numbers of one or two bytes (the timestamp's three), no headers.  NULL is no verdict.
   `left` is at least SHORT_HEAD_BYTES, so all before the value is in the buffer; what follows is covered by `end`'s check.
 */
static inline const uint8_t *short_record_end(const uint8_t *at, int64_t left, int64_t number)
{
    const uint8_t *field = at;
    uint32_t length = *field++;
    if (length & 128) {
        uint32_t high = *field++;
        if (high & 128)
            return NULL;
        length = (length & 127) | high << 7;
    }
    if (length & 1 || (field - at) + (int64_t)(length >> 1) > left)
        return NULL;
    const uint8_t *end = field + (length >> 1);
    field++; /* the attributes */
    if (*field++ & 128 && *field++ & 128 && *field++ & 128)
        return NULL;
    uint32_t offset = (uint32_t)number << 1;
    if (offset < 128) {
        if (*field++ != offset)
            return NULL;
    } else {
        if (offset >= 1 << 14 || field[0] != ((offset & 127) | 128) || field[1] != offset >> 7)
            return NULL;
        field += 2;
    }
    uint32_t key = *field++;
    if (key & 129) {
        if (key != 1)
            return NULL;
    } else {
        field += key >> 1;
    }
    uint32_t value = *field++;
    if (value & 128) {
        uint32_t high = *field++;
        if (high & 128)
            return NULL;
        value = (value & 127) | high << 7;
    }
    if (value & 1) {
        if (value != 1)
            return NULL;
    } else {
        field += value >> 1;
    }
    return field + 1 == end && *field == 0 ? end : NULL;
}

/* The head of a record as most batches have it again and again: all sizes the same, other contents.

   Producers send records of one size more often than not; for these this is a third of the work. */
struct head {
    uint64_t bytes[2], mask[2]; /* what must be the same, up to the value */
    int64_t size;               /* of the whole record; 0: there is no head to go by */
    int offset_at, offset_bytes;
};

static inline uint64_t word(const uint8_t *at)
{
    uint64_t bytes;
    memcpy(&bytes, at, sizeof bytes);
    return bytes;
}

/* The head of a record that `short_record_end` has taken, if it is short enough. */
static struct head head_of(const uint8_t *at, const uint8_t *end)
{
    struct head head = {.size = 0};
    uint8_t mask[16] = {0};
    int place = 0;
    if (__BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__)
        return head; /* `is_alike` reads the offset as such */
    if (at[place] & 128)
        mask[place++] = 255;
    mask[place++] = 255;
    place++; /* the attributes: any */
    while (at[place] & 128)
        mask[place++] = 128; /* the time: of as many bytes */
    mask[place++] = 128;
    head.offset_at = place;
    head.offset_bytes = at[place] & 128 ? 2 : 1;
    place += head.offset_bytes;
    int key_bytes = at[place] == 1 ? 0 : at[place] >> 1;
    mask[place++] = 255;
    place += key_bytes;
    if (place + 2 > (int)sizeof mask || head.offset_at > 6)
        return head;
    if (at[place] & 128)
        mask[place++] = 255;
    mask[place] = 255;
    memcpy(head.mask, mask, sizeof mask);
    head.bytes[0] = word(at) & head.mask[0];
    head.bytes[1] = word(at + 8) & head.mask[1];
    head.size = end - at;
    return head;
}

/* Whether the record at `at`, of which `left` bytes are there, has this head, its number, and no headers. */
static inline int is_alike(const struct head *head, const uint8_t *at, int64_t left, int64_t number)
{
    uint32_t offset = (uint32_t)number << 1;
    uint32_t expected = head->offset_bytes == 1 ? offset : ((offset & 127) | 128 | offset >> 7 << 8);
    uint32_t limit = head->offset_bytes == 1 ? 1 << 7 : 1 << 14;
    uint64_t found = word(at) >> (8 * head->offset_at);
    return head->size <= left && offset < limit && (uint32_t)(found & (limit == 1 << 7 ? 255 : 65535)) == expected &&
           (((word(at) & head->mask[0]) ^ head->bytes[0]) | ((word(at + 8) & head->mask[1]) ^ head->bytes[1])) == 0 &&
           at[head->size - 1] == 0;
}

static int64_t fault(const uint8_t *at, const uint8_t *area_end, int64_t count, int64_t base_timestamp)
{
    /* -1 is SOUND, so it is no answer for bytes after the last of -1 records. */
    if (count < 0)
        return 0;
    /* Offset deltas beyond two bytes are left to `record_end`. */
    int64_t short_end = SHORT_DELTAS_FIT(base_timestamp) ? (count < 1 << 13 ? count : 1 << 13) : 0;
    struct head head = {.size = 0};
    for (int64_t number = 0; number < count; number++) {
        const uint8_t *end = NULL;
        if (number < short_end && area_end - at > SHORT_HEAD_BYTES) {
            if (head.size && is_alike(&head, at, area_end - at, number)) {
                at += head.size;
                continue;
            }
            end = short_record_end(at, area_end - at, number);
            head.size = 0;
            if (end != NULL && end - at >= 16)
                head = head_of(at, end);
        }
        if (end == NULL)
            end = record_end(at, area_end, number, base_timestamp);
        if (end == NULL)
            return number;
        at = end;
    }
    return at == area_end ? -1 : count;
}

static PyObject *first_fault(PyObject *module, PyObject *const *arguments, Py_ssize_t arguments_count)
{
    (void)module;
    if (arguments_count != 4) {
        PyErr_SetString(PyExc_TypeError, "first_fault(data, position, records_count, base_timestamp_ms)");
        return NULL;
    }
    Py_ssize_t position = PyLong_AsSsize_t(arguments[1]);
    Py_ssize_t count = PyLong_AsSsize_t(arguments[2]);
    long long base_timestamp = PyLong_AsLongLong(arguments[3]);
    if (PyErr_Occurred())
        return NULL;
    Py_buffer data;
    if (PyObject_GetBuffer(arguments[0], &data, PyBUF_SIMPLE) < 0)
        return NULL;
    if (position < 0 || position > data.len) {
        PyBuffer_Release(&data);
        PyErr_SetString(PyExc_ValueError, "the position is not in the data");
        return NULL;
    }
    const uint8_t *first = data.buf;
    PyThreadState *state = data.len - position > UNLOCKED_BYTES_MIN ? PyEval_SaveThread() : NULL;
    int64_t number = fault(first + position, first + data.len, count, base_timestamp);
    if (state != NULL)
        PyEval_RestoreThread(state);
    PyBuffer_Release(&data);
    return PyLong_FromLongLong(number);
}

enum { RECORD_BYTES_MIN = 7, NO_KEY = 1, TIMESTAMP = 2, NO_TIMESTAMP = -1 };

/* What a topic requires of its records, see record_walk.py. */
struct rules {
    int requires_keys;
    int64_t timestamp_min, timestamp_max;
};

/* A record that breaks a rule. */
struct broken {
    int64_t number, timestamp;
    int kind;
};

struct walked {
    struct broken *broken; /* room for `named_max` */
    int64_t named_max, broken_count, bad_timestamps_count, latest;
};

/* Whether the area is exactly so many records, as `record_walk.walk_records` has it; fills `walked`. */
static int walk(const uint8_t *at, const uint8_t *area_end, int64_t count, int64_t base_timestamp,
                const struct rules *rules, struct walked *walked)
{
    uint64_t raw;
    walked->broken_count = walked->bad_timestamps_count = 0;
    walked->latest = NO_TIMESTAMP;
    for (int64_t number = 0; number < count; number++) {
        at = varint(at, area_end, VARINT_BYTES_MAX, &raw);
        if (at == NULL || raw & 1 || (int64_t)(raw >> 1) < RECORD_BYTES_MIN - 1 || (int64_t)(raw >> 1) > area_end - at)
            return 0;
        const uint8_t *end = at + (raw >> 1);
        int64_t timestamp;
        at = varint(at + 1, end, VARLONG_BYTES_MAX, &raw); /* after the attributes */
        if (at == NULL || __builtin_add_overflow(base_timestamp, from_zigzag(raw), &timestamp))
            return 0;
        at = varint(at, end, VARINT_BYTES_MAX, &raw);
        if (at == NULL || raw != (uint64_t)number << 1)
            return 0;
        at = varint(at, end, VARINT_BYTES_MAX, &raw);
        if (at == NULL)
            return 0;
        int64_t key_bytes = from_zigzag(raw);
        if (key_bytes > end - at)
            return 0;
        if (timestamp > walked->latest)
            walked->latest = timestamp;
        int kind = 0;
        if (rules->requires_keys && key_bytes < 0)
            kind = NO_KEY;
        else if (timestamp != NO_TIMESTAMP && (timestamp < rules->timestamp_min || timestamp > rules->timestamp_max))
            kind = TIMESTAMP;
        if (kind) {
            if (walked->broken_count < walked->named_max)
                walked->broken[walked->broken_count] = (struct broken){number, timestamp, kind};
            walked->broken_count++;
            walked->bad_timestamps_count += kind == TIMESTAMP;
        }
        at = end;
    }
    return at == area_end;
}

static PyObject *broken_rows(const struct walked *walked)
{
    int64_t named = walked->broken_count < walked->named_max ? walked->broken_count : walked->named_max;
    PyObject *rows = PyList_New((Py_ssize_t)named);
    for (int64_t index = 0; rows != NULL && index < named; index++) {
        const struct broken *each = &walked->broken[index];
        PyObject *row = Py_BuildValue("(LiL)", (long long)each->number, each->kind, (long long)each->timestamp);
        if (row == NULL || PyList_SetItem(rows, (Py_ssize_t)index, row) < 0) {
            Py_DECREF(rows);
            return NULL;
        }
    }
    return rows;
}

/* None where the data is not so many records, else (the latest timestamp, how many break a rule, how many by their
   timestamp, the first of them as (number, kind, timestamp)). */
static PyObject *walk_records(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer data;
    long long count, base_timestamp, timestamp_min, timestamp_max, named_max;
    struct rules rules;
    if (!PyArg_ParseTuple(arguments, "y*LLpLLL", &data, &count, &base_timestamp, &rules.requires_keys, &timestamp_min,
                          &timestamp_max, &named_max))
        return NULL;
    rules.timestamp_min = timestamp_min;
    rules.timestamp_max = timestamp_max;
    struct walked walked = {.named_max = named_max < 0 ? 0 : named_max};
    /* No more can be broken than there are, and each takes its bytes. */
    if (walked.named_max > data.len / RECORD_BYTES_MIN)
        walked.named_max = data.len / RECORD_BYTES_MIN;
    walked.broken = PyMem_Malloc((size_t)(walked.named_max + 1) * sizeof *walked.broken);
    if (walked.broken == NULL) {
        PyBuffer_Release(&data);
        return PyErr_NoMemory();
    }
    const uint8_t *first = data.buf;
    PyThreadState *state = data.len > UNLOCKED_BYTES_MIN ? PyEval_SaveThread() : NULL;
    int is_whole = count >= 0 && walk(first, first + data.len, count, base_timestamp, &rules, &walked);
    if (state != NULL)
        PyEval_RestoreThread(state);
    PyBuffer_Release(&data);
    PyObject *result = NULL;
    if (is_whole) {
        PyObject *rows = broken_rows(&walked);
        if (rows != NULL)
            result = Py_BuildValue("(LLLN)", (long long)walked.latest, (long long)walked.broken_count,
                                   (long long)walked.bad_timestamps_count, rows);
    } else {
        result = Py_NewRef(Py_None);
    }
    PyMem_Free(walked.broken);
    return result;
}

static int64_t big_endian(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int index = 0; index < bytes; index++)
        value = value << 8 | at[index];
    return (int64_t)value;
}

/* Places in the head of a batch, see header.py. */
enum { ATTRIBUTES_LOW_AT = 22, CODEC_MASK = 7, BASE_TIMESTAMP_AT = 27, RECORDS_COUNT_AT = 57, RECORDS_AT = 61 };

static PyObject *batch_fault(PyObject *module, PyObject *batch)
{
    (void)module;
    Py_buffer data;
    if (PyObject_GetBuffer(batch, &data, PyBUF_SIMPLE) < 0)
        return NULL;
    if (data.len < RECORDS_AT) {
        PyBuffer_Release(&data);
        PyErr_SetString(PyExc_ValueError, "there is no whole head of a batch");
        return NULL;
    }
    const uint8_t *first = data.buf;
    int64_t number = -1;
    if (!(first[ATTRIBUTES_LOW_AT] & CODEC_MASK)) {
        int64_t count = (int32_t)big_endian(first + RECORDS_COUNT_AT, 4);
        number = fault(first + RECORDS_AT, first + data.len, count, big_endian(first + BASE_TIMESTAMP_AT, 8));
    }
    PyBuffer_Release(&data);
    return PyLong_FromLongLong(number);
}

static PyMethodDef methods[] = {
    {"first_fault", (PyCFunction)(void (*)(void))first_fault, METH_FASTCALL, "See record_bounds.first_fault."},
    {"batch_fault", batch_fault, METH_O, "See record_bounds.batch_fault."},
    {"walk_records", walk_records, METH_VARARGS, "See record_walk.walk_records."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "compiled_bounds", NULL, 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_compiled_bounds(void) { return PyModuleDef_Init(&definition); }
