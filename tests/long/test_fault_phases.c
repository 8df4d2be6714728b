/*
 * test_fault_phases.c - every kind of fault in every phase of a job, in the first worker, in
 * another and in a server: the job ends in time, names the rank and where it was, and leaves
 * nothing behind.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/faults.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/test.h"
#include "lib/traces.h"

static const double most_s = 5.0, timeout_s = 1.0, deadline_s = 40.0;

struct place {
    const char *settings, *phase;
    int n_losses; /* steps that are in the result then */
};

static const struct place places[] = {
    {FAULTS_COMM "comm.hook=open", "plan", 0},
    {FAULTS_COMM "comm.hook=plan", "plan", 0},
    {FAULTS_COMM "comm.hook=bind", "bind", 0},
    {FAULTS_DEVICE "device.hook=open", "open", 0},
    {FAULTS_DEVICE "device.hook=compile", "compile", 0},
    {FAULTS_COMM "comm.hook=load", "pattern", 0},
    {FAULTS_COMM "comm.hook=load comm.call=2", "load", 0},
    {FAULTS_DEVICE "device.hook=forward device.call=2", "forward", 1},
    {FAULTS_COMM "comm.hook=begin comm.call=9", "data", 7},
    {FAULTS_DEVICE "device.hook=backward device.call=5", "backward", 4},
    {FAULTS_COMM "comm.hook=end comm.call=9", "exchange", 7},
    {FAULTS_COMM "comm.hook=publish comm.call=2", "evaluate", 5}, /* the pattern has the first */
    {FAULTS_COMM "eval.every=0 checkpoint.save=x.safetensors comm.hook=publish comm.call=3",
     "checkpoint", 23},
    {FAULTS_COMM "eval.every=0 comm.hook=publish comm.call=2", "replicas", 23},
    {FAULTS_COMM "comm.hook=close", "teardown", 23},
    {FAULTS_DEVICE "device.hook=release", "teardown", 23},
};

#define SERVER FAULTS_COMM "run.servers=1 comm.inner=ps_cpu "
static const struct place server_places[] = {
    {SERVER "comm.hook=open", "plan", 0},
    {SERVER "comm.hook=bind", "bind", 0},
    {SERVER "comm.hook=serve", "serve", 0},
    {SERVER "comm.hook=close", "teardown", 23},
};

/* What happens, and how the message begins that the rank itself is to blame for. */
static const struct kind {
    const char *fault, *says;
} kinds[] = {{"kill", "was killed by signal 9 (Killed)"},
             {"abort", "was killed by signal 6 (Aborted)"},
             {"exit_0", "ended "},
             {"exit_7", "ended with exit code 7"},
             {"stop", NULL},
             {"hang", NULL}};

static void run_one(const struct kind *kind, const struct place *place, int rank)
{
    struct command command;
    struct traces before;
    char arguments[512], who[32], phase[48];
    bool device = strstr(place->settings, "device.hook") != NULL;
    const char *section = device ? "device" : "comm";
    snprintf(arguments, sizeof arguments, "%s %s.fault=%s %s.rank=%d run.timeout_s=%g",
             place->settings, section, kind->fault, section, rank, timeout_s);
    traces_take(&before, ".");
    dpbench_ends(&command, deadline_s, 1, FAULTS_BASE "%s", arguments);
    const char *error = faults_only_error(arguments, &command);
    snprintf(who, sizeof who, "rank %d", rank);
    snprintf(phase, sizeof phase, "phase '%s'", place->phase);
    EXPECT_WORDS(arguments, command.err, who, phase);
    if (kind->says)
        EXPECT_WORDS(arguments, error, who, phase, kind->says);
    faults_expect_failed(arguments, &command);
    assert_int_equal(json_array_size(json_at(command.json, "loss")), place->n_losses);
    /* Where nobody waits, the launcher does: a little longer. */
    if (command.seconds > most_s + (kind->says ? 0 : timeout_s + 2))
        fail_msg("%s: the job took %.1f s", arguments, command.seconds);
    traces_expect_none(&before, arguments, 0.5);
    traces_free(&before);
    command_free(&command);
}

static void test_kind(void **state)
{
    const struct kind *kind = *state;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        for (int rank = 0; rank < 2; rank++)
            run_one(kind, &places[i], rank);
    for (size_t i = 0; i < sizeof server_places / sizeof *server_places; i++)
        run_one(kind, &server_places[i], 2);
}

int main(void)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        add_case(test_kind, &kinds[i], "%s", kinds[i].fault);
    return test_main(faults_setup, sandbox_teardown);
}
