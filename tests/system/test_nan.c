/* needs: threads */
/*
 * test_nan.c - a number that is none is reported at its step: in the loss, and in weights from
 * which a device still computes a finite loss, because max(0, NaN) is 0 to it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/faults.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/strategies.h"
#include "lib/test.h"
#include "lib/training.h"

static const double deadline_s = 60.0;

/* The text of the warning `nan` in the result. */
static const char *warning(const struct command *command)
{
    size_t i;
    const json_t *entry;
    json_array_foreach(json_at(command->json, "warnings"), i, entry)
    {
        if (strcmp(json_text_at(entry, "code"), "nan") == 0)
            return json_text_at(entry, "text");
    }
    fail_msg("no warning 'nan': %s", command->out);
    return "";
}

/* ---- in the loss --------------------------------------------------------------------------- */

#define DIVERGES                                                                   \
    "comm.name=shm optimizer.learning_rate=1e6 optimizer.momentum=0 eval.every=0 " \
    "run.warmup_steps=0 run.steps=40 "

TEST(test_loss)
{
    struct command command;
    char text[64];
    dpbench_ends(&command, deadline_s, 1, FAULTS_BASE DIVERGES);
    const char *error = faults_only_error("loss", &command);
    faults_expect_failed("loss", &command);
    const char *at = strstr(error, ": step ");
    assert_non_null(at);
    unsigned long step = strtoul(at + strlen(": step "), NULL, 10);
    snprintf(text, sizeof text, ": step %lu: the loss is not finite", step);
    EXPECT_WORDS("loss", error, text, "run.nan");
    size_t n = json_array_size(json_at(command.json, "loss"));
    assert_in_range(n, step, step + 1); /* what came before it is kept */

    dpbench_ends(&command, deadline_s, 0, FAULTS_BASE DIVERGES "run.nan=continue");
    assert_int_equal(json_array_size(json_at(command.json, "loss")), 40);
    snprintf(text, sizeof text, "step %lu: the loss is not finite", step);
    assert_non_null(strstr(warning(&command), text));
    json_t *loss = json_array_get(json_at(command.json, "loss"), step);
    assert_true(json_is_null(loss));
    assert_true(json_is_number(json_array_get(json_at(command.json, "loss"), step - 1)));
}

/* All workers find, or are told, that the proof after training has no numbers to compare: of
 * strategies with books, and where workers have models of their own. */
TEST(test_proof_of_no_numbers)
{
    static const char *const comms[] = {"gossip", "ps_async run.servers=1", "independent"};
    for (size_t i = 0; i < sizeof comms / sizeof *comms; i++) {
        struct command command;
        dpbench_ends(&command, deadline_s, 0,
                     FAULTS_BASE DIVERGES "run.nan=continue run.timeout_s=5 comm.name=%s",
                     comms[i]);
        assert_string_equal(json_text_at(command.json, "verification.after"), "skipped");
    }
}

/* ---- in the weights alone ------------------------------------------------------------------ */

/* fc1 of tiny_dense: ReLU comes after it, and the last of its elements are the last of the
 * arena. */
#define MUTANT                                                                       \
    "model.name=tiny_dense eval.every=0 run.warmup_steps=0 run.steps=8 comm.from=3 " \
    "comm.mutation=element_nan comm.element=700 comm.bucket=1000 "

/* From the pattern (exchange 0) on, training's steps 0 and 1 are right. */
static const char in_step_2[] = ": step 2: an element of the new fc1.weight is not finite";

static void expect_caught(const char *settings)
{
    struct command command;
    dpbench_ends(&command, deadline_s, 1, FAULTS_BASE MUTANT "%s", settings);
    EXPECT_WORDS(settings, faults_only_error(settings, &command), in_step_2, "run.nan");
    faults_expect_failed(settings, &command);
    assert_int_equal(json_array_size(json_at(command.json, "loss")), 2);
}

/* On the cpu device no loss shows it; on every device, in every strategy, the update does. */
TEST(test_weights)
{
    static const char *const devices[] = {
        "device.name=reference run.precision=fp64", "device.name=reference run.precision=fp32",
        "device.name=cpu run.precision=fp32", "device.name=cpu run.precision=bf16",
        "device.name=cpu run.precision=fp32 comm.gradient=bf16"};
    static const char *const others[] = {"run.comm_cores=1", "optimizer.nesterov=yes",
                                         "optimizer.name=adagrad", "optimizer.momentum=0"};
    const char *device = have_cpu_device() ? devices[2] : devices[1];
    char settings[256];
    for (size_t i = 0; i < (have_cpu_device() ? 5 : 2); i++) {
        snprintf(settings, sizeof settings, "comm.name=mutant_shm %s", devices[i]);
        if (strstr(settings, "run.precision=bf16") && !cpu_has_bf16())
            expect_bf16_refused(FAULTS_BASE MUTANT "%s", settings);
        else
            expect_caught(settings);
    }
    for (const struct strategy_form *form = NULL; (form = strategy_form_after(form));) {
        snprintf(settings, sizeof settings, "%s %s", device, form_settings(form, "mutant_", 2));
        expect_caught(settings);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        snprintf(settings, sizeof settings, "%s comm.name=mutant_shm %s", device, others[i]);
        expect_caught(settings);
    }
}

/* Said once, though it stays; and in the next training, which loads it. */
TEST(test_weights_continue)
{
    struct command command;
    const char *device = have_cpu_device() ? "device.name=cpu" : "device.name=reference";
    dpbench_ends(&command, deadline_s, 0,
                 FAULTS_BASE MUTANT "comm.name=mutant_shm %s run.nan=continue "
                                    "checkpoint.save=nan.safetensors",
                 device);
    assert_non_null(strstr(warning(&command), in_step_2 + 2));
    assert_int_equal(json_array_size(json_at(command.json, "loss")), 8);
    if (have_cpu_device()) /* else this test shows nothing that test_loss does not */
        assert_true(json_is_number(json_array_get(json_at(command.json, "loss"), 7)));

    dpbench_ends(&command, deadline_s, 2,
                 FAULTS_BASE "model.name=tiny_dense %s checkpoint.load=nan.safetensors", device);
    EXPECT_WORDS("load", faults_only_error("load", &command),
                 have_cpu_device() /* else it has spread */
                     ? "nan.safetensors: 'fc1.weight' has elements"
                     : ".weight' has elements",
                 "run.nan = continue");
}

/* What lies between the tensors stays zero, in a training as long as it may be. */
TEST(test_gaps)
{
    struct command command;
    for (const struct strategy_form *form = NULL; (form = strategy_form_after(form));) {
        dpbench_ends(&command, deadline_s, 0,
                     FAULTS_BASE "eval.every=0 run.steps=300 run.prove=yes %s",
                     form_settings(form, "", 2));
    }
}

TEST_MAIN(faults_setup, sandbox_teardown)
