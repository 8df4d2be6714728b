/* test_result_files.c - the files of results: their names, a full disk, what is refused. */

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "lib/command.h"
#include "lib/test.h"
#include "record/invocation.h"
#include "record/result.h"
#include "record/result_file.h"

/* Linked with --wrap=dpb_now_ns. */
static int64_t look_ns, made_up_ns; /* what each look adds; 0: the clock is real */

int64_t __real_dpb_now_ns(void);
int64_t __wrap_dpb_now_ns(void);
int64_t __wrap_dpb_now_ns(void)
{
    return look_ns > 0 ? (made_up_ns += look_ns) : __real_dpb_now_ns();
}

static size_t count_files(const char *directory)
{
    size_t n = 0;
    DIR *dir = opendir(directory);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

struct place {
    char root[64], results[128], file[128];
};

static int place_create(void **state)
{
    struct place *place = calloc(1, sizeof *place);
    temporary_directory(place->root);
    snprintf(place->results, sizeof place->results, "%s/a/b", place->root);
    snprintf(place->file, sizeof place->file, "%s/out.json", place->root);
    *state = place;
    dpb_first_error_clear();
    return 0;
}

static int place_destroy(void **state)
{
    struct place *place = *state;
    remove_directory(place->root);
    free(place);
    return 0;
}

TEST_WITH(never_over_another_runs_file, place_create, place_destroy)
{
    struct place *place = *state;
    char name[PATH_MAX];
    json_t *document =
        json_pack("{s:{s:s}, s:{s:i}}", "strategy", "name", "shm", "world", "workers", 2);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(dpb_result_write(document, NULL, NULL, place->results, "my run/1", name),
                         DPB_OK);
        assert_int_equal(count_files(place->results), i + 1);
        json_t *read = own_json(json_load_file(name, 0, NULL));
        assert_true(json_equal(read, document));
    }
    assert_non_null(strstr(name, "/a/b/my_run_1-shm-w2-"));
    json_decref(document);
}

/* Names that no file can have, or that a shell or `ls` would take for something else. */
TEST_WITH(any_name_makes_a_file, place_create, place_destroy)
{
    static const struct {
        const char *run_name, *file;
    } rows[] = {{"", "/unnamed-shm-"}, {"-rf", "/_rf-shm-"}, {"../x", "/_._x-shm-"}};
    struct place *place = *state;
    char name[PATH_MAX], longest[4096];
    json_t *document = own_json(json_pack("{s:{s:s}}", "strategy", "name", "shm"));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(
            dpb_result_write(document, NULL, NULL, place->results, rows[i].run_name, name), DPB_OK);
        if (strstr(name, rows[i].file) == NULL)
            fail_msg("run.name = '%s' makes %s", rows[i].run_name, name);
    }
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(dpb_result_write(document, NULL, NULL, place->results, longest, name), DPB_OK);
    assert_non_null(strstr(name, "x-shm-"));
}

TEST_WITH(named_file_is_replaced_whole, place_create, place_destroy)
{
    struct place *place = *state;
    char name[PATH_MAX];
    json_t *old = own_json(json_pack("{s:i}", "old", 1)), *new = own_json(json_object());
    for (int i = 0; i < 1000; i++) {
        char key[16];
        snprintf(key, sizeof key, "key%d", i);
        json_object_set_new(new, key, json_integer(i));
    }
    assert_int_equal(dpb_result_write(old, NULL, place->file, "unused", "run", name), DPB_OK);
    assert_string_equal(name, place->file);

    /* A disk that is full after 4 KiB. */
    struct rlimit kept, small = {4096, RLIM_INFINITY};
    getrlimit(RLIMIT_FSIZE, &kept);
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    dpb_status status = dpb_result_write(new, NULL, place->file, "unused", "run", name);
    setrlimit(RLIMIT_FSIZE, &kept);
    assert_int_equal(status, DPB_IO);
    assert_non_null(strstr(dpb_first_error(NULL), place->file));
    assert_int_equal(count_files(place->root), 1);
    json_t *read = own_json(json_load_file(place->file, 0, NULL));
    assert_true(json_equal(read, old));

    assert_int_equal(dpb_result_write(new, NULL, place->file, "unused", "run", name), DPB_OK);
    read = own_json(json_load_file(place->file, 0, NULL));
    assert_true(json_equal(read, new));
    assert_int_equal(count_files(place->root), 1);
}

TEST_WITH(probe_refuses_and_leaves_nothing, place_create, place_destroy)
{
    struct place *place = *state;
    char below[160];
    assert_int_equal(dpb_result_probe(NULL, place->results), DPB_OK);
    assert_int_equal(count_files(place->root), 0);
    assert_int_equal(dpb_result_probe(NULL, ""), DPB_OK);

    int fd = open(place->file, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
    close(fd);
    snprintf(below, sizeof below, "%s/sub", place->file);
    assert_int_equal(dpb_result_probe(NULL, below), DPB_USAGE);
    assert_non_null(strstr(dpb_first_error(NULL), "--output FILE"));
    assert_int_equal(dpb_result_probe(NULL, place->file), DPB_USAGE);
    assert_int_equal(dpb_result_probe(below, "unused"), DPB_USAGE);
    assert_int_equal(dpb_result_probe(place->root, "unused"), DPB_USAGE);
    assert_int_equal(dpb_result_probe(place->file, "unused"), DPB_OK);
    snprintf(below, sizeof below, "%s/new/", place->root);
    assert_int_equal(dpb_result_probe(below, "unused"), DPB_USAGE);
    assert_int_equal(count_files(place->root), 1);

    /* What is no file would be replaced by one: root's /dev/null. */
    unlink(place->file);
    assert_int_equal(mkfifo(place->file, 0600), 0);
    dpb_first_error_clear();
    assert_int_equal(dpb_result_probe(place->file, "unused"), DPB_USAGE);
    assert_non_null(strstr(dpb_first_error(NULL), "no regular file"));
}

/* A directory of 10 files, on a disk where a look at each takes so long. */
static json_t *inputs_of(const char *directory, int64_t each_ns)
{
    static const struct dpb_option rows[] = {
        {.name = "shelf", .type = DPB_OPT_STRING, .unit = "directory"}, {0}};
    const struct dpb_option_table table = {
        .section = "data", .owner = "plugin", .rows = rows, .values = (void *)&directory};
    struct dpb_experiment *experiment = own_memory(calloc(1, sizeof *experiment), free);
    assert_non_null(experiment);
    experiment->settings.run.delay = "none";
    experiment->tables[experiment->n_tables++] = table;
    look_ns = each_ns;
    made_up_ns = 0;
    json_t *inputs = own_json(dpb_result_inputs(experiment)),
           *shelf = json_object_get(inputs, "data.shelf");
    look_ns = 0;
    assert_non_null(shelf);
    json_incref(shelf);
    return shelf;
}

/* One that takes longer than 5 s to look at has no fingerprint: the look ends then. */
TEST_WITH(a_look_at_inputs_is_bounded, place_create, place_destroy)
{
    struct place *place = *state;
    static const struct {
        int64_t each_ns;
        bool whole;
    } rows[] = {{0, true}, {100000000, true}, {INT64_C(1000000000), false}};
    for (int i = 0; i < 10; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%d", place->root, i);
        FILE *file = fopen(path, "w");
        assert_true(file && fputs("book", file) >= 0 && fclose(file) == 0);
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *shelf = own_json(inputs_of(place->root, rows[i].each_ns));
        assert_int_equal(json_is_string(json_object_get(shelf, "fingerprint")), rows[i].whole);
        const json_int_t n = json_integer_value(json_object_get(shelf, "files"));
        assert_true(rows[i].whole ? n == 10 : n < 10);
    }
    assert_in_range(made_up_ns, INT64_C(5000000000), INT64_C(12000000000));
}

TEST_MAIN(NULL, NULL)
