/* test_derive.c - expressions: arithmetic, units, what is refused; settings that are derived from
 * others and from facts of the model; and back. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/derive.h"
#include "lib/command.h"
#include "lib/own.h"
#include "lib/test.h"

static dpb_status name_of(void *context, const char *name, struct dpb_amount *value)
{
    (void)context;
    *value = (struct dpb_amount){strcmp(name, "run.workers") == 0 ? 4 : 0, 0, 0};
    return value->value > 0 ? DPB_OK : dpb_fail(DPB_USAGE, "no name '%s'", name);
}

TEST(test_arithmetic)
{
    static const struct {
        const char *text;
        double value;
        int bytes, seconds;
    } rows[] = {
        {"1 + 2 * 3", 7, 0, 0},
        {"(1 + 2) * 3 - -1", 10, 0, 0},
        {"256 / run.workers / 2", 32, 0, 0},
        {"0.1 * run.workers * 8 / 256", 0.0125, 0, 0},
        {"1e-3*2", 0.002, 0, 0},
        {"4 MiB / run.workers", 1048576, 1, 0},
        {"2 KiB + 1kB", 3048, 1, 0},
        {"10 ms * 3 + 1 s", 1.03, 0, 1},
        {"10 Gbit/s * 8 ns", 10, 1, 0},
        {"1 MB / 10 MB/s", 0.1, 0, 1},
        {"8 Gbit / 1 GB", 1, 0, -1},
        {"min(3, 2, run.workers) + max(1, run.workers)", 6, 0, 0},
        {"floor(10 / run.workers) + ceil(10 / run.workers) + round(2.4)", 7, 0, 0},
        {"floor(0.3 / 0.1)", 3, 0, 0},
        {"sqrt(run.workers)", 2, 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dpb_amount is = {0};
        assert_true(dpb_expression_is(rows[i].text));
        assert_int_equal(dpb_expression(rows[i].text, "here", name_of, NULL, &is), DPB_OK);
        if (fabs(is.value - rows[i].value) > 1e-12 * fabs(rows[i].value) ||
            is.bytes != rows[i].bytes || is.seconds != rows[i].seconds)
            fail_msg("%s: %.17g B^%d s^%d", rows[i].text, is.value, is.bytes, is.seconds);
    }
}

TEST(test_no_arithmetic)
{
    static const char *const plain[] = {"4",    "-4",  "1e+3", "4 MiB", "yes",
                                        "fp32", "0.5", "",     "x",     "v1.5"};
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"1 +", "here: '1 +': a number or a name is missing before ''"},
        {"(1 + 2", "a ')' is missing"},
        {"1 + 2)", "')' follows the expression"},
        {"1 MiB + 1 s", "adds values of different units"},
        {"1 MiB + 1", "adds values of different units"},
        {"min(1 s, 2)", "min compares values of different units"},
        {"sqrt(4 s)", "sqrt takes a number without a unit"},
        {"log(4)", "there is no function 'log'"},
        {"1 / 0", "not finite"},
        {"4 mib * 2", "unknown unit 'mib * 2'"},
        {"0x10 * 2", "unknown unit 'x10 * 2'"},
        {"2 * y", "no name 'y'"},
        {"2 ** 3", "is missing before '* 3'"},
        {"((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((1", "brackets"},
        {"--------------------------------------------------------------------1", "brackets"},
    };
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        assert_false(dpb_expression_is(plain[i]));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dpb_amount is;
        dpb_first_error_clear();
        assert_int_equal(dpb_expression(rows[i].text, "here", name_of, NULL, &is), DPB_USAGE);
        if (!strstr(dpb_first_error(NULL), rows[i].message))
            fail_msg("'%s': %s", rows[i].text, dpb_first_error(NULL));
    }
}

/* ---- settings ------------------------------------------------------------------------------ */

/* "SECTION.KEY=VALUE" texts, ended by NULL, beside a small model. */
static struct dpb_config *configure(const char *const *settings)
{
    struct dpb_config *config = own_config(dpb_config_create());
    assert_int_equal(dpb_config_assign(config, "model.name=tiny", "f:1"), DPB_OK);
    assert_int_equal(dpb_config_assign(config, "device.name=reference", "f:2"), DPB_OK);
    for (; *settings; settings++)
        assert_int_equal(dpb_config_assign(config, *settings, "f:3"), DPB_OK);
    return config;
}

enum { MOST = 6 };

TEST(test_values)
{
    static const struct {
        const char *settings[MOST], *section, *key, *value;
    } rows[] = {
        {{"run.workers=4", "run.batch=256 / run.workers"}, "run", "batch", "64"},
        {{"run.workers=3", "run.batch=0.1 * run.workers * 10"}, "run", "batch", "3"},
        {{"run.batch=run.workers"}, "run", "batch", "1"}, /* the default */
        {{"run.workers=run.servers", "run.servers=run.batch*2", "run.batch=2"},
         "run",
         "workers",
         "4"},
        {{"run.batch=8", "run.workers=2",
          "optimizer.learning_rate=0.1 * run.workers * run.batch / 256"},
         "optimizer",
         "learning_rate",
         "0.00625"},
        {{"comm.bucket=parameters * 4 B / 8"}, "comm", "bucket", "845"}, /* 1690 of tiny */
        {{"comm.bucket=parameters / 8 - 1.25"}, "comm", "bucket", "210"},
        {{"comm.bucket=1 MiB / 2"}, "comm", "bucket", "524288"},
        {{"run.timeout_s=run.seconds * 2 + 500 ms", "run.seconds=1500 ms"},
         "run",
         "timeout_s",
         "3500000000 ns"},
        {{"run.timeout_s=5 / 2"}, "run", "timeout_s", "2500000000 ns"},
        {{"run.batch=samples / 4", "data.samples=64"}, "run", "batch", "16"},
        {{"eval.every=steps_per_epoch / 2", "data.samples=64", "run.batch=4", "run.workers=2"},
         "eval",
         "every",
         "4"},
        {{"run.workers=2", "run.accumulate=run.global_batch / 4", "run.global_batch=16"},
         "run",
         "accumulate",
         "4"},
        {{"run.steps=2 * classes"}, "run", "steps", "10"},
        {{"run.warmup_steps=2 * run.batch", "model.nclass=4"},
         "run",
         "warmup_steps",
         "8"},                                                                    /* tiny's own */
        {{"run.delay=constant(2 ms)", "run.name=a-b/c"}, "run", "name", "a-b/c"}, /* texts */
        {{"data.path=a/b+c"}, "data", "path", "a/b+c"},
        {{"comm.codec=topk", "comm.name=ring_tcp", "comm.codec_ratio=1 / run.workers",
          "run.workers=8"},
         "comm",
         "codec_ratio",
         "0.125"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dpb_config *config = configure(rows[i].settings);
        if (dpb_derive(config, false) != DPB_OK)
            fail_msg("row %zu: %s", i, dpb_first_error(NULL));
        const char *is = dpb_config_get(config, rows[i].section, rows[i].key)->value;
        if (strcmp(is, rows[i].value) != 0)
            fail_msg("row %zu: %s, not %s", i, is, rows[i].value);
    }
}

TEST(test_refusals)
{
    static const struct {
        const char *settings[MOST], *message;
    } rows[] = {
        {{"run.workers=3", "run.batch=100 / run.workers"},
         "f:3: run.batch: '100 / run.workers' is 33.33333333, no whole number; take floor()"},
        {{"comm.bucket=parameters / 7"}, "no whole number of bytes"},
        {{"run.batch=run.workers", "run.workers=run.batch"},
         "f:3: run.workers: run.batch depends on itself"},
        {{"run.batch=run.batch + 1"}, "run.batch depends on itself"},
        {{"model.nclass=parameters / 10"}, "f:3: model.nclass: parameters depends on itself"},
        {{"run.batch=2 * steps_per_epoch"}, "steps_per_epoch depends on itself"},
        {{"run.batch=2 * comm.name"}, "'comm.name' is no number here"},
        {{"run.batch=2 * run.nothing"}, "'run.nothing' is no number here: names are SECTION.KEY"},
        {{"run.batch=2 * steps"}, "'steps' is no number here"},
        {{"run.batch=2 * run.steps"}, "run.steps has no value here: set it"},
        {{"run.batch=2 * run.steps", "run.steps=x"}, "run.steps: 'x' is not a number"},
        {{"run.batch=4 MiB / 2"}, "'4 MiB / 2' is a size; the option takes a number"},
        {{"comm.bucket=10 MB/s"}, "'10 MB/s' is a rate; the option takes a size"},
        {{"run.timeout_s=2 s * 3 s"}, "is in units that no option has; the option takes a time"},
        {{"run.batch=1e300 * 1e10"}, "not finite"},
        {{"run.batch=1e300 * 2"}, "which is too large"},
        {{"run.batch=2 * 3", "comm.nothing=1 / 2", "comm.name=nobody"}, "unknown comm 'nobody'"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dpb_config *config = configure(rows[i].settings);
        dpb_first_error_clear();
        assert_int_equal(dpb_derive(config, false), DPB_USAGE);
        if (!strstr(dpb_first_error(NULL), rows[i].message))
            fail_msg("row %zu: %s", i, dpb_first_error(NULL));
    }
}

/* A document has the value, and the expression in the origin, so a rerun may have other names. */
TEST(test_undone)
{
    struct dpb_config *config =
        configure((const char *const[]){"run.batch=(8 / run.workers)", "run.workers=2", NULL});
    assert_int_equal(dpb_derive(config, false), DPB_OK);
    assert_string_equal(dpb_config_origin(config, "run", "batch"), "f:3 (= (8 / run.workers))");
    assert_int_equal(dpb_config_get(config, "run", "batch")->from, DPB_FROM_COMMAND);
    json_t *json = own_json(dpb_config_to_json(config));
    struct dpb_config *again = own_config(dpb_config_create());
    assert_int_equal(dpb_config_from_json(again, json, "x"), DPB_OK);
    assert_int_equal(dpb_derive_undo(again), DPB_OK);
    assert_string_equal(dpb_config_get(again, "run", "batch")->value, "(8 / run.workers)");
    assert_string_equal(dpb_config_origin(again, "run", "batch"), "f:3");
    assert_int_equal(dpb_config_assign(again, "run.workers=4", "command line"), DPB_OK);
    assert_int_equal(dpb_derive(again, false), DPB_OK);
    assert_string_equal(dpb_config_get(again, "run", "batch")->value, "2");
}

static int set_up(void **state)
{
    char plugins[PATH_MAX];
    (void)state;
    snprintf(plugins, sizeof plugins, "%s/plugins", build_directory());
    return setenv("DPBENCH_PLUGIN_PATH", plugins, 1);
}

TEST_MAIN(set_up, NULL)
