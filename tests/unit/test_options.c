/*
 * Option tables: every type, every refusal by its whole message, what results and help show of
 * them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/options.h"
#include "base/parse.h"
#include "lib/capture.h"
#include "lib/own.h"
#include "lib/test.h"

struct values {
    int64_t batch, any;
    bool prove;
    double rate;
    uint64_t bucket;
    int64_t timeout, wait;
    const char *name, *path;
    int gradient;
};

static const char *const gradients[] = {"fp32", "bf16", NULL};

#define AT(member) offsetof(struct values, member)
static const struct dpb_option run_rows[] = {
    {"batch", DPB_OPT_INT, NULL, "32", 1, 65536, NULL, AT(batch), "Samples a worker takes a step.",
     NULL},
    {"any", DPB_OPT_INT, NULL, NULL, 0, 0, NULL, AT(any), "Any integer.", NULL},
    {"prove", DPB_OPT_BOOL, NULL, "no", 0, 0, NULL, AT(prove), "Check every exchange.", NULL},
    {"rate", DPB_OPT_REAL, NULL, "0.5", 0, 1, NULL, AT(rate), "A share.", NULL},
    {"timeout_s", DPB_OPT_TIME, "s", "60", 1e6, 3600e9, NULL, AT(timeout), "Longest wait.", NULL},
    {"name", DPB_OPT_STRING, NULL, NULL, 0, 0, NULL, AT(name), "Name of the run.", NULL},
    {NULL, DPB_OPT_BOOL, NULL, NULL, 0, 0, NULL, 0, NULL, NULL}};
static const struct dpb_option comm_rows[] = {
    {"bucket", DPB_OPT_SIZE, "bytes", "4 MiB", 4, 1 << 30, NULL, AT(bucket), "Size of a bucket.",
     NULL},
    {"wait", DPB_OPT_TIME, NULL, NULL, 0, 9e18, NULL, AT(wait), "No unit of its own.", NULL},
    {"gradient", DPB_OPT_CHOICE, NULL, "fp32", 0, 0, gradients, AT(gradient), "Type that travels.",
     NULL},
    {NULL, DPB_OPT_BOOL, NULL, NULL, 0, 0, NULL, 0, NULL, NULL}};
static const struct dpb_option ring_rows[] = {
    {"path", DPB_OPT_STRING, "path", "here", 0, 0, NULL, AT(path), "A path.", NULL},
    {NULL, DPB_OPT_BOOL, NULL, NULL, 0, 0, NULL, 0, NULL, NULL}};

enum { N_TABLES = 3 };

static void make_tables(struct dpb_option_table tables[N_TABLES], struct values *values)
{
    memset(values, 0x5a, sizeof *values);
    tables[0] = (struct dpb_option_table){"run", NULL, run_rows, values};
    tables[1] = (struct dpb_option_table){"comm", NULL, comm_rows, values};
    tables[2] = (struct dpb_option_table){"comm", "comm 'ring_tcp'", ring_rows, values};
}

static struct dpb_config *given; /* the strings of the values live in it */

/* "SECTION.KEY=VALUE" from "x.ini:12"; NULL: nothing. */
static dpb_status parse(const char *assignment, struct values *values)
{
    struct dpb_option_table tables[N_TABLES];
    make_tables(tables, values);
    dpb_config_destroy(given);
    given = dpb_config_create();
    dpb_first_error_clear();
    if (assignment)
        assert_int_equal(dpb_config_assign(given, assignment, "x.ini:12"), DPB_OK);
    return dpb_options_parse(tables, N_TABLES, given);
}

TEST(test_defaults)
{
    struct values v;
    assert_int_equal(parse(NULL, &v), DPB_OK);
    assert_int_equal(v.batch, 32);
    assert_int_equal(v.any, 0);
    assert_false(v.prove);
    assert_true(v.rate == 0.5);
    assert_int_equal(v.timeout, INT64_C(60000000000));
    assert_int_equal(v.wait, 0);
    assert_string_equal(v.name, "");
    assert_string_equal(v.path, "here");
    assert_int_equal(v.bucket, 4 << 20);
    assert_int_equal(v.gradient, 0);
}

TEST(test_values)
{
    struct values v;
    assert_int_equal(parse("run.batch=65536", &v), DPB_OK);
    assert_int_equal(v.batch, 65536);
    assert_int_equal(parse("run.batch=1", &v), DPB_OK);
    assert_int_equal(v.batch, 1);
    assert_int_equal(parse("run.any=-9223372036854775808", &v), DPB_OK);
    assert_int_equal(v.any, INT64_MIN);
    assert_int_equal(parse("run.rate=2.5e-1", &v), DPB_OK);
    assert_true(v.rate == 0.25);
    assert_int_equal(parse("run.name=a name", &v), DPB_OK);
    assert_string_equal(v.name, "a name");
    assert_int_equal(parse("run.timeout_s=1.5", &v), DPB_OK);
    assert_int_equal(v.timeout, 1500000000);
    assert_int_equal(parse("comm.wait=250us", &v), DPB_OK);
    assert_int_equal(v.wait, 250000);
    assert_int_equal(parse("comm.bucket=0.5 kB", &v), DPB_OK);
    assert_int_equal(v.bucket, 500);
    assert_int_equal(parse("comm.gradient=bf16", &v), DPB_OK);
    assert_int_equal(v.gradient, 1);
    static const char *const yes[] = {"yes", "true", "on", "1", "Yes", "TRUE"};
    static const char *const no[] = {"no", "false", "off", "0", "No", "OFF"};
    for (int i = 0; i < 6; i++) {
        char text[32];
        snprintf(text, sizeof text, "run.prove=%s", yes[i]);
        assert_int_equal(parse(text, &v), DPB_OK);
        assert_true(v.prove);
        snprintf(text, sizeof text, "run.prove=%s", no[i]);
        assert_int_equal(parse(text, &v), DPB_OK);
        assert_false(v.prove);
    }
}

TEST(test_refusals)
{
    assert_int_equal(setenv("HOME", "/home/me", 1), 0);
    static const char size_units[] = "units are B, kB, KiB, MB, MiB, GB, GiB";
    static const char time_units[] = "units are ns, us, ms, s, min";
    static const struct {
        const char *assignment, *message, *more;
    } bad[] = {
        {"comm.bukcet=1", "unknown option 'bukcet' for comm 'ring_tcp'; did you mean 'bucket'?",
         ""},
        {"run.btach=1", "unknown option 'btach' in [run]; did you mean 'batch'?", ""},
        {"run.bucket=1", "unknown option 'bucket' in [run]; it belongs to [comm]", ""},
        {"run.xyz=1", "unknown option 'xyz' in [run]; `dpbench help` lists the options", ""},
        {"com.bucket=1", "unknown section 'com'; did you mean 'comm'?", ""},
        {"elsewhere.x=1", "unknown section 'elsewhere'; `dpbench help` lists the sections", ""},
        {"run.batch=12x", "run.batch: '12x' is not a number", ""},
        {"run.batch=", "run.batch: '' is not a number", ""},
        {"run.batch=-", "run.batch: '-' is not a number", ""},
        {"run.batch=0x10", "run.batch: '0x10' is not a number", ""},
        {"run.batch=1 2", "run.batch: '1 2' is not a number", ""},
        {"run.batch=1.5", "run.batch: '1.5' is not a whole number", ""},
        {"run.batch=0", "run.batch: '0' is out of range: 1 to 65536", ""},
        {"run.batch=65537", "run.batch: '65537' is out of range: 1 to 65536", ""},
        {"run.batch=99999999999999999999",
         "run.batch: '99999999999999999999' is out of range: 1 to 65536", ""},
        {"run.any=9223372036854775808", "run.any: '9223372036854775808' is too large", ""},
        {"run.prove=maybe", "run.prove: 'maybe' is not yes or no", ""},
        {"run.rate=nan", "run.rate: 'nan' is not a number", ""},
        {"run.rate=inf", "run.rate: 'inf' is not a number", ""},
        {"run.rate=0x1p-1", "run.rate: '0x1p-1' is not a number", ""},
        {"run.rate=0.5f", "run.rate: '0.5f' is not a number", ""},
        {"run.rate=1e999", "run.rate: '1e999' is out of range: 0 to 1", ""},
        {"run.rate=1e-400", "run.rate: '1e-400' is too small: it would be 0", ""},
        {"comm.path=~/x y", "comm.path: '~/x y': ~ is a shell's word; write /home/me/x y", ""},
        {"comm.path=~", "comm.path: '~': ~ is a shell's word; write /home/me", ""},
        {"comm.path=$HOME/x", "comm.path: '$HOME/x': variables are a shell's; write their values",
         ""},
        {"comm.path=\"/x y\"",
         "comm.path: the quotes of \"/x y\" would be part of its name; write /x y, with its blanks",
         ""},
        {"comm.path='x'",
         "comm.path: the quotes of 'x' would be part of its name; write x, with its blanks", ""},
        {"run.rate=1.01", "run.rate: '1.01' is out of range: 0 to 1", ""},
        {"comm.bucket=4 MIB", "comm.bucket: '4 MIB' has an unknown unit; ", size_units},
        {"comm.bucket=4K", "comm.bucket: '4K' has an unknown unit; ", size_units},
        {"comm.bucket=4 KB", "comm.bucket: '4 KB' has an unknown unit; ", size_units},
        {"comm.bucket=4 MiB x", "comm.bucket: '4 MiB x' has an unknown unit; ", size_units},
        {"comm.bucket=-1", "comm.bucket: '-1' is not a size, such as 64 KiB", ""},
        {"comm.bucket=MiB", "comm.bucket: 'MiB' is not a size, such as 64 KiB", ""},
        {"comm.bucket=4.", "comm.bucket: '4.' is not a size, such as 64 KiB", ""},
        {"comm.bucket=1.0001 kB", "comm.bucket: '1.0001 kB' is not a whole number of bytes", ""},
        {"comm.bucket=2 B", "comm.bucket: '2 B' is out of range: 4 B to 1 GiB", ""},
        {"comm.bucket=2 GiB", "comm.bucket: '2 GiB' is out of range: 4 B to 1 GiB", ""},
        {"comm.bucket=9999999999999999999 GiB",
         "comm.bucket: '9999999999999999999 GiB' is out of range: 4 B to 1 GiB", ""},
        {"comm.wait=5", "comm.wait: '5' has no unit; ", time_units},
        {"comm.wait=5 h", "comm.wait: '5 h' has an unknown unit; ", time_units},
        {"comm.wait=0.5 ns", "comm.wait: '0.5 ns' is not a whole number of nanoseconds", ""},
        {"comm.wait=1e3 s", "comm.wait: '1e3 s' has an unknown unit; ", time_units},
        {"comm.wait=soon", "comm.wait: 'soon' is not a time, such as 2 s", ""},
        {"run.timeout_s=2 min x", "run.timeout_s: '2 min x' has an unknown unit; ", time_units},
        {"run.timeout_s=0", "run.timeout_s: '0' is out of range: 1 ms to 60 min", ""},
        {"comm.gradient=bf61", "comm.gradient: 'bf61' is not one of fp32, bf16; ",
         "did you mean 'bf16'?"},
        {"comm.gradient=int8", "comm.gradient: 'int8' is not one of fp32, bf16", ""},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct values v;
        char message[256];
        snprintf(message, sizeof message, "x.ini:12: %s%s", bad[i].message, bad[i].more);
        assert_int_equal(parse(bad[i].assignment, &v), DPB_USAGE);
        assert_string_equal(dpb_first_error(NULL), message);
    }
}

/* A setting that two tables of its section have would mean two things. */
TEST(test_keys_that_are_taken)
{
    struct dpb_option_table tables[N_TABLES];
    struct values v;
    make_tables(tables, &v);
    struct dpb_config *config = own_config(dpb_config_create());
    tables[2].rows = comm_rows;
    dpb_first_error_clear();
    assert_int_equal(dpb_options_parse(tables, N_TABLES, config), DPB_UNSUPPORTED);
    assert_string_equal(dpb_first_error(NULL),
                        "option 'bucket' of comm 'ring_tcp': dpbench itself has a comm.bucket, "
                        "too; rename one of them");
    tables[1].section = "device"; /* another section may have the key */
    assert_int_equal(dpb_options_parse(tables, N_TABLES, config), DPB_OK);
}

TEST(test_parse_known)
{
    struct dpb_option_table tables[N_TABLES];
    struct values v;
    make_tables(tables, &v);
    struct dpb_config *config = own_config(dpb_config_create());
    dpb_config_assign(config, "run.batch=7", "command line");
    dpb_config_assign(config, "run.later=7", "command line");
    dpb_config_assign(config, "other.thing=7", "command line");
    assert_int_equal(dpb_options_parse_known(&tables[0], config), DPB_OK);
    assert_int_equal(v.batch, 7);
    assert_int_equal(dpb_options_parse(tables, N_TABLES, config), DPB_USAGE);
}

TEST(test_parsers)
{
    uint64_t bytes = 77;
    int64_t ns = 77;
    assert_true(dpb_parse_size("9223372036854775807", &bytes) && bytes == INT64_MAX);
    assert_true(dpb_parse_size("1.5GiB", &bytes) && bytes == UINT64_C(3) << 29);
    assert_true(dpb_parse_size("0", &bytes) && bytes == 0);
    assert_true(dpb_parse_size("1.000000000000000000000 kB", &bytes) && bytes == 1000);
    bytes = 77;
    assert_false(dpb_parse_size("9223372036854775808", &bytes));
    assert_false(dpb_parse_size("18446744073709551617", &bytes));
    assert_false(dpb_parse_size("8589934592 GiB", &bytes));
    assert_false(dpb_parse_size("1.0000000000000000001 kB", &bytes));
    /* 20 decimals, chosen to be whole if their scale wrapped around at 2^64. */
    assert_false(dpb_parse_size("1.00776627963145224192 kB", &bytes));
    assert_false(dpb_parse_size("", &bytes));
    assert_int_equal(bytes, 77);
    assert_true(dpb_parse_time("2", "min", &ns) && ns == INT64_C(120000000000));
    assert_true(dpb_parse_time("0.000000001 s", NULL, &ns) && ns == 1);
    ns = 77;
    assert_false(dpb_parse_time("2", NULL, &ns));
    assert_false(dpb_parse_time("2", "hours", &ns));
    assert_false(dpb_parse_time("1e30 s", NULL, &ns));
    assert_int_equal(ns, 77);
    bool truth;
    assert_false(dpb_parse_bool("", &truth) || dpb_parse_bool("2", &truth));
}

TEST(test_effective)
{
    struct dpb_option_table tables[N_TABLES];
    struct values v;
    make_tables(tables, &v);
    struct dpb_config *config = own_config(dpb_config_create());
    dpb_config_assign(config, "run.batch=7", "x.ini:2");
    dpb_config_assign(config, "run.prove=on", "x.ini:3");
    dpb_config_assign(config, "run.timeout_s=100 ms", "command line");
    dpb_config_assign(config, "comm.wait=3us", "x.ini:4");
    dpb_config_assign(config, "comm.bucket=1 MiB", "x.ini:5");
    dpb_config_assign(config, "comm.gradient=bf16", "x.ini:6");
    assert_int_equal(dpb_options_parse(tables, N_TABLES, config), DPB_OK);
    json_t *root = own_json(dpb_options_effective(tables, N_TABLES, config));
    char *text = json_dumps(root, JSON_SORT_KEYS | JSON_REAL_PRECISION(6));
    assert_string_equal(text,
                        "{\"comm\": {\"bucket\": {\"origin\": \"x.ini:5\", \"value\": 1048576}, "
                        "\"gradient\": {\"origin\": \"x.ini:6\", \"value\": \"bf16\"}, "
                        "\"path\": {\"origin\": \"default\", \"value\": \"here\"}, "
                        "\"wait\": {\"origin\": \"x.ini:4\", \"value\": 3e-6}}, "
                        "\"run\": {\"any\": {\"origin\": \"default\", \"value\": null}, "
                        "\"batch\": {\"origin\": \"x.ini:2\", \"value\": 7}, "
                        "\"name\": {\"origin\": \"default\", \"value\": null}, "
                        "\"prove\": {\"origin\": \"x.ini:3\", \"value\": true}, "
                        "\"rate\": {\"origin\": \"default\", \"value\": 0.5}, "
                        "\"timeout_s\": {\"origin\": \"command line\", \"value\": 0.1}}}");
    free(text);

    /* A rerun from the result has the same values, also where a bare number has no unit. */
    struct dpb_config *back = own_config(dpb_config_create());
    assert_int_equal(dpb_config_from_json(back, root, "r.json"), DPB_OK);
    struct values first = v;
    make_tables(tables, &v);
    assert_int_equal(dpb_options_parse(tables, N_TABLES, back), DPB_OK);
    assert_int_equal(v.batch, first.batch);
    assert_int_equal(v.prove, first.prove);
    assert_int_equal(v.timeout, first.timeout);
    assert_int_equal(v.wait, 3000);
    assert_int_equal(v.bucket, first.bucket);
    assert_int_equal(v.gradient, first.gradient);
}

TEST(test_help)
{
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    dpb_options_print("run", run_rows, out);
    dpb_options_print("comm", comm_rows, out);
    dpb_options_print("comm", NULL, out);
    fclose(out);
    assert_string_equal(text, "  run.batch = integer, 1 to 65536; default 32\n"
                              "      Samples a worker takes a step.\n"
                              "  run.any = integer\n"
                              "      Any integer.\n"
                              "  run.prove = yes|no; default no\n"
                              "      Check every exchange.\n"
                              "  run.rate = number, 0 to 1; default 0.5\n"
                              "      A share.\n"
                              "  run.timeout_s = time (s), 1 ms to 60 min; default 60\n"
                              "      Longest wait.\n"
                              "  run.name = text\n"
                              "      Name of the run.\n"
                              "  comm.bucket = size (bytes), 4 B to 1 GiB; default 4 MiB\n"
                              "      Size of a bucket.\n"
                              "  comm.wait = time, at least 0 ns\n"
                              "      No unit of its own.\n"
                              "  comm.gradient = fp32|bf16; default fp32\n"
                              "      Type that travels.\n");
    free(text);
}

TEST(test_did_you_mean)
{
    static const char *const names[] = {"bucket", "batch", "learning_rate", "lr", NULL};
    assert_string_equal(dpb_did_you_mean("bukcet", names), "bucket"); /* neighbours swapped */
    assert_string_equal(dpb_did_you_mean("buckets", names), "bucket");
    assert_string_equal(dpb_did_you_mean("bcket", names), "bucket");
    assert_string_equal(dpb_did_you_mean("learning-rate", names), "learning_rate");
    assert_string_equal(dpb_did_you_mean("Batch", names), "batch");
    assert_string_equal(dpb_did_you_mean("lrr", names), "lr");
    assert_string_equal(dpb_did_you_mean("learn", names), "learning_rate"); /* its begin */
    assert_null(dpb_did_you_mean("x", names));
    assert_null(dpb_did_you_mean("momentum", names));
    assert_null(dpb_did_you_mean("ba", names));
    assert_null(dpb_did_you_mean("", names));
    char endless[300];
    memset(endless, 'x', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    assert_null(dpb_did_you_mean(endless, names));
}

static int forget(void **state)
{
    (void)state;
    dpb_config_destroy(given);
    return 0;
}

TEST_MAIN(silence, forget)
