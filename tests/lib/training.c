/* training.c - see training.h. */
#include "lib/training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/plugin.h"
#include "lib/says.h"
#include "lib/test.h"

enum { LINE_BYTES = 4096 };
static const double deadline_s = 120.0;

static const char shared[] =
    "run.steady_limit_s=0 run.warmup_steps=0 run.precision=fp64 run.batch=2 run.steps=5 "
    "device.name=reference device.threads=1 optimizer.learning_rate=0.1 ";
static const char synthetic[] = "data.name=synthetic data.samples=640 ";

static char directory[64];

int training_setup(void **state)
{
    char path[128];
    (void)state;
    temporary_directory(directory);
    snprintf(path, sizeof path, "%s/empty.ini", directory);
    write_file(path, "", 0);
    return 0;
}

int training_setup_mutants(void **state)
{
    char path[512];
    const char *build = build_directory();
    snprintf(path, sizeof path, "%s/tests/plugins:%s/plugins", build, build);
    setenv("DPBENCH_PLUGIN_PATH", path, 1);
    return training_setup(state);
}

int training_teardown(void **state)
{
    (void)state;
    remove_directory(directory);
    return 0;
}

void training_start(struct started *started, const char *settings)
{
    const char *data = strstr(settings, "data.name=") ? "" : synthetic;
    dpbench_start(started, NULL, "-c %s/empty.ini --json run.results=%s/results %s%s%s", directory,
                  directory, shared, data, settings);
}

static void run(struct training *training)
{
    static int n_runs;
    char checkpoint[128], line[LINE_BYTES];
    struct started started;
    snprintf(checkpoint, sizeof checkpoint, "%s/%d.safetensors", directory, n_runs++);
    snprintf(line, sizeof line, "%s checkpoint.save=%s", training->settings, checkpoint);
    training_start(&started, line);
    command_finish(&started, &training->command, deadline_s);
    if (access(checkpoint, R_OK) == 0) { /* also of a training that fails its last checks */
        weights_read(&training->weights, checkpoint, false);
        unlink(checkpoint); /* it stays mapped */
    }
}

static void start(struct training *training, const char *settings, va_list list)
{
    memset(training, 0, sizeof *training);
    if (vasprintf(&training->settings, settings, list) < 0)
        fail_msg("out of memory");
    own_memory(training->settings, free);
    run(training);
}

void train_anyway(struct training *training, const char *settings, ...)
{
    va_list list;
    va_start(list, settings);
    start(training, settings, list);
    va_end(list);
}

void train(struct training *training, const char *settings, ...)
{
    va_list list;
    va_start(list, settings);
    start(training, settings, list);
    va_end(list);
    if (training->command.exit_code != 0)
        fail_msg("%s\nexit code %d, signal %d%s: %s", training->settings,
                 training->command.exit_code, training->command.signal_number,
                 training->command.late ? ", killed at the deadline" : "", training->command.err);
}

void train_says(int exit_code, const char *const *words, const char *settings, ...)
{
    struct training training;
    va_list list;
    va_start(list, settings);
    start(&training, settings, list);
    va_end(list);
    if (training.command.exit_code != exit_code)
        fail_msg("%s: exit code %d, not %d: %s", training.settings, training.command.exit_code,
                 exit_code, training.command.err);
    expect_words(training.settings, training.command.err, words);
}

void training_free(struct training *training)
{
    free_owned(training->settings);
    command_free(&training->command);
    weights_free(&training->weights);
    memset(training, 0, sizeof *training);
}

/* ---- comparing ----------------------------------------------------------------------------- */

static void expect_verdict(const struct training *training, const char *check)
{
    char path[64];
    snprintf(path, sizeof path, "verification.%s", check);
    const char *verdict = json_text_at(training->command.json, path);
    if (strcmp(verdict, "pass") != 0)
        fail_msg("%s\n%s is '%s'", training->settings, check, verdict);
}

void expect_verified(const struct training *training)
{
    expect_verdict(training, "pattern");
    expect_verdict(training, "exchange");
    expect_verdict(training, "replicas");
}

void expect_same_weights(const struct training *a, const struct training *b,
                         const struct training *start_, double bound)
{
    struct weights_difference worst;
    if (weights_agree(&a->weights, &b->weights, start_ ? &start_->weights : NULL, bound, &worst))
        return;
    fail_msg("%s[%llu] is %.17g after\n    %s\nand %.17g after\n    %s\n"
             "they differ by %.3g; allowed is %.3g",
             worst.tensor, (unsigned long long)worst.element, worst.a, a->settings, worst.b,
             b->settings, fabs(worst.a - worst.b), worst.allowed);
}

void expect_same_losses(const struct training *a, const struct training *b, double bound)
{
    const json_t *x = json_at(a->command.json, "loss"), *y = json_at(b->command.json, "loss");
    assert_true(json_array_size(x) > 0);
    assert_int_equal(json_array_size(x), json_array_size(y));
    for (size_t i = 0; i < json_array_size(x); i++) {
        double p = json_number_value(json_array_get(x, i));
        double q = json_number_value(json_array_get(y, i));
        if (!(fabs(p - q) <= bound * fabs(q)))
            fail_msg("the loss of step %zu is %.17g in\n    %s\nand %.17g in\n    %s", i, p,
                     a->settings, q, b->settings);
    }
}

bool have_plugin(const char *kind_name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/plugins/%s.so", build_directory(), kind_name);
    return access(path, R_OK) == 0;
}

bool have_cpu_device(void)
{
    return have_plugin("device_cpu");
}

bool cpu_has_bf16(void)
{
    static bool asked, has;
    if (!asked && have_cpu_device())
        has = plugin_load(DPB_PLUGIN_DEVICE, "cpu", &plugin_host)->capabilities & DPB_DEVICE_BF16;
    asked = true;
    return has;
}

void expect_bf16_refused(const char *arguments, ...)
{
    struct command command;
    char line[LINE_BYTES];
    va_list list;
    va_start(list, arguments);
    vsnprintf(line, sizeof line, arguments, list);
    va_end(list);
    dpbench_ends(&command, deadline_s, 2, "%s", line);
    EXPECT_WORDS(line, command.err, "device 'cpu' does not compute in bf16",
                 "set run.precision to one that it has: fp32",
                 "oneDNN has no bf16 on this processor");
    if (strstr(command.err, "rank "))
        fail_msg("%s: ranks have started: %s", line, command.err);
}
