/*
 * Configuration files: what is read, and every refusal with its file and line; the command line;
 * JSON there and back.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/config.h"
#include "base/log.h"
#include "lib/capture.h"
#include "lib/command.h"
#include "lib/test.h"

static char path[sizeof own_directory + 16];

static int setup(void **state)
{
    silence(state);
    own_directory_setup(state);
    snprintf(path, sizeof path, "%s/x.ini", own_directory);
    return 0;
}

static struct dpb_config *read_ok(const char *text)
{
    struct dpb_config *config = own_config(dpb_config_create());
    write_file(path, text, strlen(text));
    dpb_first_error_clear();
    if (dpb_config_read(config, path) != DPB_OK)
        fail_msg("%s", dpb_first_error(NULL));
    return config;
}

/* The file is refused with "PATH:LINE: ..." that has `part`, and changes nothing. */
static void refuse_bytes(const char *bytes, size_t n, int line, const char *part)
{
    struct dpb_config *config = own_config(dpb_config_create());
    char start[sizeof path + 16];
    write_file(path, bytes, n);
    dpb_first_error_clear();
    assert_int_equal(dpb_config_read(config, path), DPB_USAGE);
    snprintf(start, sizeof start, "%s:%d: ", path, line);
    const char *message = dpb_first_error(NULL);
    if (strncmp(message, start, strlen(start)) != 0 || !strstr(message, part))
        fail_msg("'%s' is not '%s...%s'", message, start, part);
    assert_int_equal(config->n_settings, 0);
}

static void refuse(const char *text, int line, const char *part)
{
    refuse_bytes(text, strlen(text), line, part);
}

static void assert_setting(const struct dpb_config *config, const char *section, const char *key,
                           const char *value, int line)
{
    const struct dpb_setting *setting = dpb_config_get(config, section, key);
    char origin[sizeof path + 16];
    assert_non_null(setting);
    assert_string_equal(setting->value, value);
    snprintf(origin, sizeof origin, "%s:%d", path, line);
    assert_string_equal(setting->origin, origin);
}

TEST(test_read)
{
    struct dpb_config *config = read_ok("; a comment\n"
                                        "[run]\n"
                                        "batch = 32\n"
                                        "  name=two words  ; and a comment\n"
                                        "\n"
                                        "# another\n"
                                        "\t; indented\n"
                                        "[comm] ; of the exchange\n"
                                        "name = ring_tcp\n"
                                        "codec =\n"
                                        "path = a=b:c;d\n"
                                        "[run]\n"
                                        "steps = 5");
    assert_int_equal(config->n_settings, 6);
    assert_setting(config, "run", "batch", "32", 3);
    assert_setting(config, "run", "name", "two words", 4); /* not more of batch's value */
    assert_setting(config, "comm", "name", "ring_tcp", 9);
    assert_setting(config, "comm", "codec", "", 10);
    assert_setting(config, "comm", "path", "a=b:c;d", 11);
    assert_setting(config, "run", "steps", "5", 13);
    assert_string_equal(config->settings[0].key, "batch");
    assert_null(dpb_config_get(config, "run", "codec"));
    assert_int_equal(dpb_config_get(config, "run", "batch")->from, DPB_FROM_FILE);
    dpb_config_assign(config, "run.batch=7", "command line");
    assert_int_equal(dpb_config_get(config, "run", "batch")->from, DPB_FROM_COMMAND);
    dpb_config_destroy(NULL);
}

TEST(test_read_line_ends)
{
    struct dpb_config *config = read_ok("\xEF\xBB\xBF[run]\r\nbatch = 32\r\n\r\nsteps = 5\r\n");
    assert_int_equal(config->n_settings, 2);
    assert_setting(config, "run", "batch", "32", 2);
    assert_setting(config, "run", "steps", "5", 4);
    config = read_ok("");
    assert_int_equal(config->n_settings, 0);
}

TEST(test_read_replaces)
{
    struct dpb_config *config = own_config(dpb_config_create());
    assert_int_equal(dpb_config_set(config, "run", "batch", "1", "command line"), DPB_OK);
    write_file(path, "[run]\nbatch = 2\n", 16);
    assert_int_equal(dpb_config_read(config, path), DPB_OK);
    assert_int_equal(config->n_settings, 1);
    assert_setting(config, "run", "batch", "2", 2);
}

TEST(test_refusals)
{
    refuse("batch = 32\n[run]\n", 1, "'batch' stands before the first [section]");
    refuse("[run]\nbatch = 32\nsteps = 5\nbatch = 64\n", 4, "'batch' of [run] was given before: ");
    refuse("[run]\nbatch = 1\n[comm]\n[run]\nbatch = 2\n", 5, "x.ini:2");
    refuse("[run]\nbatch 32\n", 2, "'batch 32' is not KEY = VALUE");
    refuse("[run]\nbatch: 32\n", 2, "'batch: 32' is not KEY = VALUE");
    refuse("[run]\nbatch ; = 32\n", 2, "is not KEY = VALUE");
    refuse("[run]\nids = 1,\n      2\n", 3, "a value does not go on in the next line");
    refuse("[run]\n = 32\n", 2, "a value without a key");
    refuse("[run\nbatch = 32\n", 1, "without its ']'");
    refuse("[run ; ]\nbatch = 32\n", 1, "without its ']'");
    refuse("[]\n", 1, "a section without a name");
    refuse("[run] batch = 32\n", 1, "'batch = 32' after the section's name");
    refuse("[run]\nname = \xff\xfe\n", 2, "not UTF-8");
    refuse_bytes("[run]\nbatch = 3\0"
                 "2\n",
                 18, 2, "NUL");
    refuse_bytes("[run]\n\0", 7, 2, "NUL");
}

TEST(test_long_lines)
{
    static char text[20000];
    /* A path of 4,095 bytes has room; a comment has any length. */
    snprintf(text, sizeof text, "[%060d] ; %0300d\r\nname = %04095d ; %09000d\r\n# %0300d\n", 1, 2,
             7, 3, 4);
    struct dpb_config *config = read_ok(text);
    assert_int_equal(config->n_settings, 1);
    assert_int_equal(strlen(config->settings[0].section), 60);
    assert_int_equal(strlen(config->settings[0].value), 4095);
    snprintf(text, sizeof text, "[run]\nname = %08184d\n", 7);
    assert_int_equal(strlen(dpb_config_get(read_ok(text), "run", "name")->value), 8184);
    snprintf(text, sizeof text, "[run]\nbatch = 3\nname = %08185d\nsteps = 4\n", 7);
    refuse(text, 3, "longer than 8191 bytes");
    memset(text, 'x', sizeof text - 1); /* no end of line at all */
    refuse(text, 1, "longer than 8191 bytes");
}

TEST(test_unreadable)
{
    struct dpb_config *config = own_config(dpb_config_create());
    dpb_first_error_clear();
    assert_int_equal(dpb_config_read(config, own_directory), DPB_USAGE);
    assert_non_null(strstr(dpb_first_error(NULL), own_directory));
    assert_non_null(strstr(dpb_first_error(NULL), "Is a directory"));
    dpb_first_error_clear();
    assert_int_equal(dpb_config_read(config, "/nowhere/x.ini"), DPB_USAGE);
    assert_string_equal(dpb_first_error(NULL),
                        "/nowhere/x.ini: cannot be read: No such file or directory");
}

TEST(test_assign)
{
    struct dpb_config *config = read_ok("[run]\nbatch = 32\n");
    assert_int_equal(dpb_config_assign(config, "run.batch=64", "command line"), DPB_OK);
    assert_int_equal(dpb_config_assign(config, " sweep.comm.name = shm, mpi=x ", "command line"),
                     DPB_OK);
    assert_int_equal(dpb_config_assign(config, "run.name=", "command line"), DPB_OK);
    assert_int_equal(config->n_settings, 3);
    assert_string_equal(dpb_config_get(config, "run", "batch")->value, "64");
    assert_string_equal(dpb_config_get(config, "run", "batch")->origin, "command line");
    assert_string_equal(dpb_config_get(config, "sweep", "comm.name")->value, "shm, mpi=x");
    assert_string_equal(dpb_config_get(config, "run", "name")->value, "");
    static const char *const bad[] = {"run.batch", "batch=3", "batch=0.5", ".batch=3",
                                      "run.=3",    "run. =3", "",          "="};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char message[128];
        snprintf(message, sizeof message, "command line: '%s' is not SECTION.KEY=VALUE", bad[i]);
        dpb_first_error_clear();
        assert_int_equal(dpb_config_assign(config, bad[i], "command line"), DPB_USAGE);
        assert_string_equal(dpb_first_error(NULL), message);
    }
    assert_int_equal(config->n_settings, 3);
}

TEST(test_set_and_remove)
{
    struct dpb_config *config = read_ok("[run]\na = 1\nb = 2\nc = 3\n");
    const struct dpb_setting *b = dpb_config_get(config, "run", "b");
    /* From its own strings. */
    assert_int_equal(dpb_config_set(config, b->section, b->key, b->value, b->origin), DPB_OK);
    assert_setting(config, "run", "b", "2", 3);
    struct dpb_config *copy = own_config(dpb_config_copy(config));
    dpb_config_remove(config, "run", "a");
    dpb_config_remove(config, "run", "nothing");
    assert_int_equal(config->n_settings, 2);
    assert_null(dpb_config_get(config, "run", "a"));
    assert_setting(config, "run", "c", "3", 4);
    assert_int_equal(copy->n_settings, 3);
    assert_setting(copy, "run", "a", "1", 2);
}

TEST(test_json_round_trip)
{
    struct dpb_config *config =
        read_ok("[run]\nbatch = 32\nname = \"\\ \xC3\xA4\n[comm]\nname = shm\n");
    dpb_config_assign(config, "run.steps=007", "command line");
    json_t *json = own_json(dpb_config_to_json(config));
    char *text = json_dumps(json, 0);
    json_t *again = own_json(json_loads(text, JSON_REJECT_DUPLICATES, NULL));
    struct dpb_config *back = own_config(dpb_config_create());
    assert_int_equal(dpb_config_from_json(back, again, "the job"), DPB_OK);
    assert_int_equal(back->n_settings, config->n_settings);
    for (size_t i = 0; i < config->n_settings; i++) {
        const struct dpb_setting *a = &config->settings[i];
        const struct dpb_setting *b = dpb_config_get(back, a->section, a->key);
        assert_non_null(b);
        assert_string_equal(a->value, b->value); /* 007 stays a text */
        assert_string_equal(a->origin, b->origin);
        assert_false(b->base_units);
    }
    free(text);
}

TEST(test_json_of_a_result)
{
    json_t *json =
        json_loads("{\"run\": {\"batch\": {\"value\": 32, \"origin\": \"x.ini:2\"},"
                   "           \"timeout_s\": {\"value\": 0.1, \"origin\": \"command line\"},"
                   "           \"prove\": {\"value\": true, \"origin\": \"x.ini:3\"},"
                   "           \"seed\": {\"value\": 1, \"origin\": \"default\"},"
                   "           \"global_batch\": {\"value\": 64, \"origin\": \"derived\"},"
                   "           \"epochs\": {\"value\": null, \"origin\": \"default\"},"
                   "           \"name\": {\"value\": \"x\"}}}",
                   0, NULL);
    struct dpb_config *config = own_config(dpb_config_create()),
                      *back = own_config(dpb_config_create());
    assert_int_equal(dpb_config_from_json(config, json, "result.json"), DPB_OK);
    assert_int_equal(config->n_settings, 4);
    assert_string_equal(dpb_config_get(config, "run", "batch")->value, "32");
    assert_string_equal(dpb_config_get(config, "run", "timeout_s")->value, "0.1");
    assert_string_equal(dpb_config_get(config, "run", "prove")->value, "true");
    assert_string_equal(dpb_config_get(config, "run", "name")->origin, "result.json");
    assert_true(dpb_config_get(config, "run", "timeout_s")->base_units);
    assert_false(dpb_config_get(config, "run", "prove")->base_units);
    assert_int_equal(dpb_config_get(config, "run", "batch")->from, DPB_FROM_DOCUMENT);
    /* Base units travel on to the workers. */
    json_t *again = own_json(dpb_config_to_json(config));
    assert_int_equal(dpb_config_from_json(back, again, "the job"), DPB_OK);
    assert_true(dpb_config_get(back, "run", "timeout_s")->base_units);
    assert_string_equal(dpb_config_get(back, "run", "timeout_s")->value, "0.1");
    json_decref(json);
}

TEST(test_json_refusals)
{
    static const struct {
        const char *json, *message;
    } bad[] = {
        {"[]", "r.json: the configuration is not a JSON object"},
        {"{\"run\": 3}", "r.json: section 'run' is not a JSON object"},
        {"{\"run\": {\"ok\": {\"value\": 1}, \"batch\": 3}}",
         "r.json: run.batch has no value that is a text, a number or a boolean"},
        {"{\"run\": {\"batch\": {\"value\": [3]}}}",
         "r.json: run.batch has no value that is a text, a number or a boolean"},
        {"{\"run\": {\"batch\": {\"value\": \"3\\u0000\"}}}",
         "r.json: run.batch has no value that is a text, a number or a boolean"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct dpb_config *config = own_config(dpb_config_create());
        json_t *json = own_json(json_loads(bad[i].json, JSON_ALLOW_NUL, NULL));
        assert_non_null(json);
        dpb_first_error_clear();
        assert_int_equal(dpb_config_from_json(config, json, "r.json"), DPB_USAGE);
        assert_string_equal(dpb_first_error(NULL), bad[i].message);
        assert_int_equal(config->n_settings, 0);
    }
}

TEST_MAIN(setup, own_directory_teardown)
