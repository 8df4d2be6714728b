/*
 * test_tokens.c - the tokens data plugin: windows and labels of all its types, of one file and of a
 * directory, and every kind of damage refused with file, place and expectation.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data_source.h"
#include "lib/capture.h"
#include "lib/command.h"

enum { LENGTH = 8, HEADER_WORDS = 256, HEADER = HEADER_WORDS * 4 };
enum { GPT2 = 20240520, LLAMA3 = 20240801, EVALUATION = 20240522 };

static const struct dpb_data_request of_ids = {
    .shape = {1, 1, LENGTH}, .nclass = 256, .ids = true, .n_workers = 1};

/* Every form of a file. */
static const struct form {
    const char *type; /* data.type */
    uint32_t magic, version;
    size_t header, id_bytes;
    uint32_t nclass; /* by default */
} forms[] = {
    {"bytes", 0, 0, 0, 1, 256},
    {"uint16", 0, 0, 0, 2, 50257},
    {"llmc", GPT2, 1, HEADER, 2, 50257},
    {"llmc", LLAMA3, 7, HEADER, 4, 50257},
};
enum { FORMS = sizeof forms / sizeof *forms };
static const struct form *const bytes = &forms[0], *const uint16 = &forms[1],
                                *const llmc = &forms[2], *const llmc32 = &forms[3];

/* ---- making files -------------------------------------------------------------------------- */

struct blob {
    uint8_t bytes[HEADER + 4096];
    size_t n;
};

static void set_word(struct blob *blob, size_t at, uint32_t value, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++)
        blob->bytes[at + i] = (uint8_t)(value >> 8 * i);
}

/* Below 256, so that bytes have them, too, and from one id to the next never the same. */
static int32_t id_at(uint64_t i)
{
    return (int32_t)(i * 37 % 251);
}

/* `n` ids, id_at(first) and what follows. */
static struct blob make(const struct form *form, uint64_t first, uint32_t n)
{
    struct blob blob = {.n = form->header + n * form->id_bytes};
    assert_true(blob.n <= sizeof blob.bytes);
    if (form->header > 0) {
        set_word(&blob, 0, form->magic, 4);
        set_word(&blob, 4, form->version, 4);
        set_word(&blob, 8, n, 4);
    }
    for (uint32_t i = 0; i < n; i++)
        set_word(&blob, form->header + i * form->id_bytes, (uint32_t)id_at(first + i),
                 form->id_bytes);
    return blob;
}

/* The path of `name` in the test's directory; @borrowed until the fourth call after. */
static const char *place(const char *name)
{
    static char paths[4][512];
    static unsigned at;
    char *path = paths[at++ % 4];
    snprintf(path, sizeof *paths, "%s/%s", own_directory, name);
    return path;
}

static void put(const char *name, const struct blob *blob)
{
    write_file(place(name), blob->bytes, blob->n);
}

static void put_ids(const char *name, const struct form *form, uint64_t first, uint32_t n)
{
    const struct blob blob = make(form, first, n);
    put(name, &blob);
}

/* ---- opening ------------------------------------------------------------------------------- */

/* `name` and `test_name` in the test's directory; `more` is an assignment, or NULL. */
static dpb_status open_more(const struct form *form, const char *name, const char *test_name,
                            const char *more, struct source *source)
{
    char path[600], test_path[600], type[32];
    const char *assignments[5] = {path, type};
    size_t n = 2;
    snprintf(path, sizeof path, "data.path=%s", place(name));
    snprintf(type, sizeof type, "data.type=%s", form->type);
    if (test_name) {
        snprintf(test_path, sizeof test_path, "data.test_path=%s", place(test_name));
        assignments[n++] = test_path;
    }
    assignments[n] = more;
    return source_open("tokens", &of_ids, assignments, source);
}

static struct source open_good(const struct form *form, const char *name, const char *test_name,
                               const char *more)
{
    struct source source;
    if (open_more(form, name, test_name, more, &source) != DPB_OK)
        fail_msg("%s: %s", name, dpb_first_error(NULL));
    return source;
}

static void expect_message(const char *part)
{
    if (!strstr(dpb_first_error(NULL), part))
        fail_msg("'%s' is not in '%s'", part, dpb_first_error(NULL));
}

/* Neither opens nor keeps anything. */
static void expect_refused(const struct form *form, const char *name, const char *more,
                           dpb_status status, const char *const *words)
{
    struct source source;
    const size_t before = allocated_bytes;
    const dpb_status found = open_more(form, name, NULL, more, &source);
    if (found != status)
        fail_msg("%s: %s: %s", name, dpb_status_name(found), dpb_first_error(NULL));
    for (; *words; words++)
        expect_message(*words);
    source_close(&source);
    assert_int_equal(allocated_bytes, before);
}

static dpb_status fetch(const struct source *source, dpb_split split, uint64_t index, int32_t *ids,
                        int32_t *labels)
{
    return source->ops->fetch(source->handle, split, 0, &index, 1, ids, labels);
}

/* The window's ids are those from `first` on, its labels the next ones. */
static void expect_window(const struct source *source, dpb_split split, uint64_t index,
                          uint64_t first)
{
    const uint32_t length = source->info.format.shape.w;
    int32_t ids[64], labels[64];
    assert_true(length < 64);
    ids[length] = labels[length] = -5; /* stays */
    assert_int_equal(fetch(source, split, index, ids, labels), DPB_OK);
    for (uint32_t i = 0; i < length; i++) {
        if (ids[i] != id_at(first + i) || labels[i] != id_at(first + i + 1))
            fail_msg("window %d, position %u: id %d, label %d, wanted %d and %d", (int)index, i,
                     ids[i], labels[i], id_at(first + i), id_at(first + i + 1));
    }
    assert_true(ids[length] == -5 && labels[length] == -5);
}

/* ---- good files ---------------------------------------------------------------------------- */

TEST(test_windows_and_labels_of_every_type)
{
    for (size_t f = 0; f < FORMS; f++) {
        put_ids("one", &forms[f], 3, 25 * LENGTH + 1);
        struct source source = open_good(&forms[f], "one", NULL, NULL);
        const struct dpb_sample_format *format = &source.info.format;
        assert_int_equal(source.info.nclass, forms[f].nclass);
        assert_int_equal(format->type, DPB_INT32);
        assert_true(format->shape.c == 1 && format->shape.h == 1 && format->shape.w == LENGTH);
        assert_int_equal(dpb_sample_labels(format), LENGTH);
        assert_int_equal(source.info.n_samples[DPB_TRAIN], 23);
        assert_int_equal(source.info.n_samples[DPB_TEST], 2); /* the last tenth */
        for (uint64_t i = 0; i < 25; i++)
            expect_window(&source, i < 23 ? DPB_TRAIN : DPB_TEST, i < 23 ? i : i - 23,
                          3 + i * LENGTH);

        /* Several in one call. */
        const uint64_t order[] = {7, 0, 22};
        int32_t ids[3][LENGTH], labels[3][LENGTH];
        assert_int_equal(
            source.ops->fetch(source.handle, DPB_TRAIN, 4, order, 3, ids, (int32_t *)labels),
            DPB_OK);
        for (uint64_t i = 0; i < 3; i++) {
            assert_int_equal(ids[i][0], id_at(3 + order[i] * LENGTH));
            assert_int_equal(labels[i][LENGTH - 1], id_at(3 + order[i] * LENGTH + LENGTH));
        }
        struct dpb_data_counts counts;
        source.ops->count(source.handle, &counts);
        assert_int_equal(counts.bytes_read, 28 * 2 * LENGTH * forms[f].id_bytes);
        source_close(&source);
    }
}

/* A window has one id more than its length: without the last one it is none. */
TEST(test_a_window_needs_the_id_behind_it)
{
    for (size_t f = 0; f < FORMS; f++) {
        put_ids("exact", &forms[f], 0, 2 * LENGTH + 1);
        struct source source = open_good(&forms[f], "exact", NULL, NULL);
        assert_int_equal(source.info.n_samples[DPB_TRAIN], 2);
        assert_int_equal(source.info.n_samples[DPB_TEST], 0);
        source_close(&source);
        put_ids("exact", &forms[f], 0, 2 * LENGTH);
        source = open_good(&forms[f], "exact", NULL, NULL);
        assert_int_equal(source.info.n_samples[DPB_TRAIN], 1);
        source_close(&source);
        put_ids("exact", &forms[f], 0, LENGTH);
        expect_refused(&forms[f], "exact", NULL, DPB_DATA,
                       WORDS(place("exact"), "no file has the 8 + 1 tokens"));
    }
}

TEST(test_length_and_vocabulary)
{
    put_ids("one", uint16, 0, 41);
    struct source source = open_good(uint16, "one", NULL, "data.length=10");
    assert_int_equal(source.info.format.shape.w, 10);
    assert_int_equal(source.info.n_samples[DPB_TRAIN], 4);
    expect_window(&source, DPB_TRAIN, 3, 30);
    source_close(&source);
    source = open_good(uint16, "one", NULL, "data.length=1");
    assert_int_equal(source.info.n_samples[DPB_TRAIN], 36);
    expect_window(&source, DPB_TEST, 3, 39);
    source_close(&source);
    source = open_good(uint16, "one", NULL, "data.vocabulary=300");
    assert_int_equal(source.info.nclass, 300);
    source_close(&source);
    put_ids("one", bytes, 0, 41);
    source = open_good(bytes, "one", NULL, "data.vocabulary=300");
    assert_int_equal(source.info.nclass, 256);
    source_close(&source);
}

/* ---- directories --------------------------------------------------------------------------- */

/* In the order of the bytes of their names, without hidden files and directories. Files that have
 * no window lie before, between and behind the others. */
TEST(test_a_directory)
{
    mkdir(place("shelf"), 0700);
    mkdir(place("shelf/below"), 0700);
    put_ids("shelf/below/file", bytes, 0, 100);
    put_ids("shelf/.hidden", bytes, 0, 100);
    put_ids("shelf/0empty", bytes, 0, 0);
    put_ids("shelf/B", bytes, 1000, 3 * LENGTH + 5); /* 3 windows, 4 ids left over */
    put_ids("shelf/C", bytes, 0, 0);
    put_ids("shelf/D", bytes, 0, LENGTH); /* one id too few */
    put_ids("shelf/a", bytes, 2000, 2 * LENGTH + 1);
    put_ids("linked", bytes, 3000, 4 * LENGTH + 1);
    assert_int_equal(symlink(place("linked"), place("shelf/b")), 0);
    put_ids("shelf/z", bytes, 0, 1);
    struct source source = open_good(bytes, "shelf", NULL, NULL);
    assert_int_equal(source.info.n_samples[DPB_TRAIN], 9);
    assert_int_equal(source.info.n_samples[DPB_TEST], 0);
    for (uint64_t i = 0; i < 9; i++)
        expect_window(&source, DPB_TRAIN, i,
                      i < 3   ? 1000 + i * LENGTH
                      : i < 5 ? 2000 + (i - 3) * LENGTH
                              : 3000 + (i - 5) * LENGTH);
    source_close(&source);
}

TEST(test_a_test_set_of_its_own)
{
    put_ids("train", uint16, 0, 20 * LENGTH + 1);
    put_ids("test", uint16, 5000, 3 * LENGTH + 1);
    struct source source = open_good(uint16, "train", "test", NULL);
    assert_int_equal(source.info.n_samples[DPB_TRAIN], 20);
    assert_int_equal(source.info.n_samples[DPB_TEST], 3);
    expect_window(&source, DPB_TRAIN, 19, 19 * LENGTH);
    expect_window(&source, DPB_TEST, 2, 5000 + 2 * LENGTH);
    source_close(&source);
    put_ids("test", uint16, 5000, 3);
    const size_t before = allocated_bytes;
    assert_int_equal(open_more(uint16, "train", "test", NULL, &source), DPB_DATA);
    expect_message(place("test"));
    source_close(&source);
    assert_int_equal(allocated_bytes, before);
}

/* ---- large files and many threads ---------------------------------------------------------- */

TEST(test_a_terabyte)
{
    const uint64_t n_tokens = UINT64_C(1) << 39, n_windows = (n_tokens - 1) / LENGTH;
    const int fd = open(place("large"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    if (ftruncate(fd, (off_t)(n_tokens * 2)) != 0) {
        print_message("no file of 1 TB here: %s\n", strerror(errno));
        close(fd);
        skip();
    }
    assert_int_equal(pwrite(fd, "\x4d\x01", 2, (off_t)(n_windows * LENGTH * 2)), 2);
    close(fd);
    largest_bytes = 0;
    struct source source = open_good(uint16, "large", NULL, NULL);
    assert_true(largest_bytes < 4096);
    assert_int_equal(source.info.n_samples[DPB_TRAIN], n_windows - n_windows / 10);
    assert_int_equal(source.info.n_samples[DPB_TEST], n_windows / 10);
    int32_t ids[LENGTH], labels[LENGTH];
    assert_int_equal(fetch(&source, DPB_TEST, n_windows / 10 - 1, ids, labels), DPB_OK);
    assert_int_equal(ids[LENGTH - 1], 0);
    assert_int_equal(labels[LENGTH - 2], 0);
    assert_int_equal(labels[LENGTH - 1], 0x14d);
    source_close(&source);
    unlink(place("large"));
}

enum { THREADS = 6, ROUNDS = 40, FILES = 5, EACH = 10 };

struct reader {
    pthread_t thread;
    const struct source *source;
    uint64_t number;
    int n_wrong;
};

static void *read_windows(void *argument)
{
    struct reader *reader = argument;
    for (uint64_t i = 0; i < ROUNDS * FILES * EACH; i++) {
        const uint64_t index = (i * 7 + reader->number * 13) % (FILES * EACH);
        const uint64_t first = index / EACH * 1000 + index % EACH * LENGTH;
        int32_t ids[LENGTH], labels[LENGTH];
        reader->n_wrong += fetch(reader->source, DPB_TRAIN, index, ids, labels) != DPB_OK;
        for (uint32_t k = 0; k < LENGTH; k++)
            reader->n_wrong += ids[k] != id_at(first + k) || labels[k] != id_at(first + k + 1);
    }
    return NULL;
}

TEST(test_threads)
{
    struct reader readers[THREADS];
    mkdir(place("many"), 0700);
    for (uint64_t i = 0; i < FILES; i++) {
        char name[16];
        snprintf(name, sizeof name, "many/%c", (int)('a' + i));
        put_ids(name, llmc, i * 1000, EACH * LENGTH + 1);
    }
    put_ids("few", llmc, 0, LENGTH + 1);
    struct source source = open_good(llmc, "many", "few", NULL);
    for (uint64_t i = 0; i < THREADS; i++) {
        readers[i] = (struct reader){.source = &source, .number = i};
        assert_int_equal(pthread_create(&readers[i].thread, NULL, read_windows, &readers[i]), 0);
    }
    for (uint64_t i = 0; i < THREADS; i++) {
        pthread_join(readers[i].thread, NULL);
        assert_int_equal(readers[i].n_wrong, 0);
    }
    struct dpb_data_counts counts;
    source.ops->count(source.handle, &counts);
    assert_int_equal(counts.bytes_read, THREADS * ROUNDS * FILES * EACH * 2 * LENGTH * 2);
    source_close(&source);
}

/* Windows that are longer than one direct read, and lie between the blocks of a disk. */
TEST(test_direct)
{
    enum { LONG = 300001 };
    uint8_t *text = own_memory(malloc(2 * LONG + 5), free);
    int32_t *ids = own_memory(malloc(LONG * sizeof *ids), free),
            *labels = own_memory(malloc(LONG * sizeof *labels), free);
    const struct form of_bytes = {.type = "bytes"};
    struct source source;
    for (uint32_t i = 0; i < 2 * LONG + 5; i++)
        text[i] = (uint8_t)(i * i % 251);
    write_file(place("long"), text, 2 * LONG + 5);
    if (open_more(&of_bytes, "long", NULL, "data.direct=yes", &source) != DPB_OK) {
        expect_message("this file system has no direct reads");
        skip();
    }
    source_close(&source);
    const char path[] = "data.path=";
    char whole[600];
    snprintf(whole, sizeof whole, "%s%s", path, place("long"));
    const char *const assignments[] = {whole, "data.direct=yes", "data.length=300001", NULL};
    assert_int_equal(source_open("tokens", &of_ids, assignments, &source), DPB_OK);
    for (uint64_t window = 0; window < 2; window++) {
        assert_int_equal(fetch(&source, DPB_TRAIN, window, ids, labels), DPB_OK);
        for (uint32_t i = 0; i < LONG; i++)
            if (ids[i] != text[window * LONG + i] || labels[i] != text[window * LONG + i + 1])
                fail_msg("window %d, id %u: %d", (int)window, i, ids[i]);
    }
    source_close(&source);
}

/* ---- damage -------------------------------------------------------------------------------- */

/* An id of a window, and one that is nothing but the last label. */
TEST(test_ids_beyond_the_vocabulary)
{
    static const struct {
        uint32_t at, id;
    } rows[] = {{LENGTH + 3, 300}, {2 * LENGTH, 300}, {LENGTH, UINT16_MAX}};
    for (size_t f = 1; f < FORMS; f++) {
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            const struct form *form = &forms[f];
            const size_t at = form->header + rows[i].at * form->id_bytes;
            struct blob blob = make(form, 0, 2 * LENGTH + 1);
            char message[160];
            int32_t ids[LENGTH], labels[LENGTH];
            set_word(&blob, at, rows[i].id, form->id_bytes);
            put("wild", &blob);
            struct source source = open_good(form, "wild", NULL, "data.vocabulary=300");
            if (rows[i].at > LENGTH)
                expect_window(&source, DPB_TRAIN, 0, 0);
            assert_int_equal(fetch(&source, DPB_TRAIN, 1, ids, labels), DPB_DATA);
            snprintf(message, sizeof message,
                     "%s: byte %zu: expected an id below data.vocabulary = 300, found %u",
                     place("wild"), at, rows[i].id);
            expect_message(message);
            source_close(&source);
            /* The largest that is allowed. */
            source = open_good(form, "wild", NULL, "data.vocabulary=65536");
            assert_int_equal(fetch(&source, DPB_TRAIN, 1, ids, labels), DPB_OK);
            source_close(&source);
        }
    }
    struct blob blob = make(llmc32, 0, LENGTH + 1);
    int32_t ids[LENGTH], labels[LENGTH];
    set_word(&blob, HEADER, UINT32_MAX, 4);
    put("wild", &blob);
    struct source source = open_good(llmc32, "wild", NULL, NULL);
    assert_int_equal(fetch(&source, DPB_TRAIN, 0, ids, labels), DPB_DATA);
    expect_message("byte 1024: expected an id below data.vocabulary = 50257, found 4294967295");
    source_close(&source);
}

TEST(test_damaged_headers)
{
    static const struct {
        size_t at; /* in the header */
        uint32_t value;
        dpb_status status;
        const char *words[2];
    } rows[] = {
        {0, 5, DPB_DATA, {"byte 0: expected 20240520 version 1", "found 5 version 1"}},
        {0, EVALUATION, DPB_UNSUPPORTED, {"multiple-choice evaluations (20240522)"}},
        {4, 2, DPB_DATA, {"or 20240801 version 7", "found 20240520 version 2"}},
        {4, 7, DPB_DATA, {"found 20240520 version 7"}},
        {0, LLAMA3, DPB_DATA, {"found 20240801 version 1"}},
        {8, 19, DPB_DATA, {"byte 8: expected 20 tokens, as the file's 1064 bytes", "found 19"}},
        {8, 21, DPB_DATA, {"byte 8: expected 20 tokens", "found 21"}},
        {8, UINT32_MAX, DPB_DATA, {"byte 8: expected 20 tokens", "found 4294967295"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct blob blob = make(llmc, 0, 20);
        set_word(&blob, rows[i].at, rows[i].value, 4);
        put("damaged", &blob);
        expect_refused(llmc, "damaged", NULL, rows[i].status,
                       WORDS(place("damaged"), rows[i].words[0], rows[i].words[1]));
    }
    static const struct {
        size_t n;
        const char *message;
    } sizes[] = {{0, "found a file of 0 bytes"},
                 {HEADER - 1, "header of 1,024 bytes, found a file of 1023 bytes"},
                 {HEADER, "byte 8: expected 0 tokens"},
                 {HEADER + 39, "byte 8: expected 19 tokens, as the file's 1063 bytes"}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct blob blob = make(llmc, 0, 20);
        blob.n = sizes[i].n;
        put("damaged", &blob);
        expect_refused(llmc, "damaged", NULL, DPB_DATA, WORDS(place("damaged"), sizes[i].message));
    }
}

TEST(test_what_cannot_be_opened)
{
    struct blob odd = make(uint16, 0, 20);
    odd.n--;
    put("odd", &odd);
    expect_refused(uint16, "odd", NULL, DPB_DATA,
                   WORDS(place("odd"), "ids of 2 bytes", "odd size of 39 bytes"));
    expect_refused(bytes, "nowhere", NULL, DPB_DATA, WORDS(place("nowhere"), "cannot be opened"));
    expect_refused(bytes, "odd", "data.test_path=/nowhere", DPB_DATA,
                   WORDS("/nowhere: cannot be opened"));
    assert_int_equal(mkfifo(place("pipe"), 0600), 0);
    expect_refused(bytes, "pipe", NULL, DPB_DATA, WORDS(place("pipe"), "is not a regular file"));
    mkdir(place("void"), 0700);
    expect_refused(bytes, "void", NULL, DPB_DATA, WORDS(place("void"), "no file has the 8 + 1"));
    put("void/odd", &odd); /* one bad file of several */
    put_ids("void/good", uint16, 0, 20);
    expect_refused(uint16, "void", NULL, DPB_DATA, WORDS(place("void/odd")));
    unlink(place("void/odd"));
    assert_int_equal(symlink("nowhere", place("void/link")), 0);
    expect_refused(uint16, "void", NULL, DPB_DATA, WORDS(place("void/link"), "cannot be opened"));
}

TEST(test_requests_and_options_that_are_refused)
{
    const char *const none[] = {NULL}, *const file[] = {"data.path=/etc/passwd", NULL};
    struct dpb_data_request of_images = {.shape = {3, 32, 32}, .nclass = 10};
    struct source source;
    assert_int_equal(source_open("tokens", &of_ids, none, &source), DPB_USAGE);
    expect_message("data.path is empty");
    source_close(&source);
    assert_int_equal(source_open("tokens", &of_images, file, &source), DPB_UNSUPPORTED);
    expect_message("the model reads images");
    source_close(&source);
}

/* What changes while it is used. */
TEST(test_a_file_that_becomes_shorter_or_vanishes)
{
    int32_t ids[LENGTH], labels[LENGTH];
    put_ids("melts", uint16, 0, 5 * LENGTH + 1);
    struct source source = open_good(uint16, "melts", NULL, NULL);
    assert_int_equal(truncate(place("melts"), 4 * LENGTH * 2 + 6), 0);
    expect_window(&source, DPB_TRAIN, 3, 3 * LENGTH); /* its last label is there */
    assert_int_equal(fetch(&source, DPB_TRAIN, 4, ids, labels), DPB_DATA);
    expect_message(place("melts"));
    expect_message("byte 70: expected more ids, found the end: the file has become shorter");
    unlink(place("melts"));
    dpb_first_error_clear();
    assert_int_equal(fetch(&source, DPB_TRAIN, 0, ids, labels), DPB_IO);
    expect_message(place("melts"));
    source_close(&source);
}

static int setup(void **state)
{
    silence(state);
    return own_directory_setup(state);
}

TEST_MAIN(setup, own_directory_teardown)
