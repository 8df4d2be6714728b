/* needs: threads */
/*
 * test_codec_back.c - ps_cpu with comm.codec_back: the bits do not depend on where the shards are;
 * a single worker's answers are its messages; residuals of the way back are part of a checkpoint;
 * what cannot work is refused. test_codecs.c has its books, and what all carriers have in common.
 */
#include <string.h>

#include "lib/faults.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/test.h"
#include "lib/weights.h"

static const double deadline_s = 60.0;

#define TRAINING                                                                     \
    FAULTS_BASE "run.steps=8 run.warmup_steps=2 eval.every=0 model.name=tiny_dense " \
                "device.name=reference comm.name=ps_cpu comm.bucket=1000 "           \
                "optimizer.learning_rate=0.05 "

static void run_well(struct command *command, const char *codec, const char *settings)
{
    dpbench_ends(command, deadline_s, 0, TRAINING "comm.codec=%s %s", codec, settings);
}

static const char *const codecs[] = {
    "topk comm.codec_ratio=0.1 comm.codec_start_step=3",
    "topk comm.codec_ratio=0.1 comm.codec_momentum=0.9 optimizer.momentum=0",
    "int8 comm.codec_rounding=stochastic", "onebit"};
enum { N_CODECS = sizeof codecs / sizeof *codecs };

static void expect_equal(const struct command *a, const struct command *b, bool equal)
{
    if ((strcmp(json_text_at(a->json, "ranks.0.checksum"),
                json_text_at(b->json, "ranks.0.checksum")) == 0) != equal)
        fail_msg("the bits are%s equal", equal ? " not" : "");
}

/* The same bits on one machine and on several, by fewer bytes than weights are; and other bits than
 * without: the way back loses something. A worker whose shard it is gets and sends two messages of
 * three; with servers, three of three. */
static void test_places(void **state)
{
    static const struct {
        const char *settings;
        double bytes; /* by those of one machine without servers */
    } places[] = {{"comm.hosts=1+2 comm.interface=lo", 1},
                  {"comm.hosts=2+1 comm.interface=lo comm.streams=2 run.comm_cores=1", 1},
                  {"comm.hosts=1+1+1 comm.interface=lo", 1},
                  {"run.servers=2", 1.5},
                  {"run.servers=1 comm.hosts=1+3 comm.interface=lo", 1.5}};
    const char *codec = *state;
    struct command here, there, weights;
    run_well(&here, codec, "run.workers=3 run.prove=yes comm.codec_back=yes");
    assert_string_equal(json_text_at(here.json, "verification.exchange"), "pass");
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char settings[256];
        snprintf(settings, sizeof settings, "run.workers=3 run.prove=yes comm.codec_back=yes %s",
                 places[i].settings);
        run_well(&there, codec, settings);
        expect_equal(&here, &there, true);
        assert_string_equal(json_text_at(there.json, "verification.exchange"), "pass");
        assert_string_equal(json_text_at(there.json, "verification.replicas"), "pass");
        assert_true(json_number_at(there.json, "comm.bytes_per_step") ==
                    places[i].bytes * json_number_at(here.json, "comm.bytes_per_step"));
    }
    run_well(&weights, codec, "run.workers=3 comm.codec_back=no");
    expect_equal(&here, &weights, false);
    assert_true(json_number_at(here.json, "comm.bytes_per_step") <
                json_number_at(weights.json, "comm.bytes_per_step"));
}

/* What topk sends of one worker has k elements, and so has the answer. */
TEST(test_alone)
{
    struct command with, without;
    run_well(&with, codecs[0], "run.workers=1 comm.codec_back=yes");
    run_well(&without, codecs[0], "run.workers=1 comm.codec_back=no");
    expect_equal(&with, &without, true);
}

#define SAVED "run.workers=3 run.warmup_steps=0 comm.codec_back=yes "
#define LOADED "run.steps=4 checkpoint.load=whole-step5.safetensors "

/* Saved after 5 of 9 steps and continued: all arrays have the bits of the run that never
 * stopped. Other shards, or other buckets, cannot take the residuals. */
static void test_goes_on(void **state)
{
    static const char *const others[] = {"run.servers=0", "run.servers=1 comm.bucket=500"};
    struct command command;
    char settings[256];
    const char *codec = *state;
    for (unsigned n_servers = 0; n_servers < 3; n_servers += 2) {
        snprintf(settings, sizeof settings,
                 SAVED
                 "run.servers=%u run.steps=9 checkpoint.save=whole.safetensors checkpoint.at=5",
                 n_servers);
        run_well(&command, codec, settings);
        snprintf(settings, sizeof settings,
                 SAVED LOADED "run.servers=%u checkpoint.save=part.safetensors", n_servers);
        run_well(&command, codec, settings);
        assert_null(strstr(command.err, "were not read"));
        weights_expect_equal("whole.safetensors", "part.safetensors", true);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        dpbench_says(deadline_s, 2, WORDS("residual"), TRAINING SAVED LOADED "comm.codec=%s %s",
                     codec, others[i]);
}

TEST(test_refusals)
{
    static const struct {
        const char *settings, *words[3];
    } refusals[] = {
        {"comm.codec=none", {"comm.codec_back = yes does nothing: it needs comm.codec", NULL}},
        {"comm.codec=topk run.workers=2 run.servers=1 comm.hosts=2+1 comm.interface=lo",
         {"server rank 2 is on a machine without workers", "is in no checkpoint", NULL}},
        {"comm.codec=topk comm.codec_feedback=no",
         {"comm.codec_back = yes keeps a residual", "comm.codec_feedback = no", NULL}},
        {"comm.codec=topk comm.name=shm",
         {"unknown option 'codec_back'", "it is an option of ", NULL}},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        dpbench_says(deadline_s, 2, refusals[i].words, TRAINING "comm.codec_back=yes %s",
                     refusals[i].settings);
}

int main(void)
{
    for (size_t i = 0; i < N_CODECS; i++) {
        add_case(test_places, (void *)codecs[i], "%s: the same bits everywhere", codecs[i]);
        add_case(test_goes_on, (void *)codecs[i], "%s: saved and continued", codecs[i]);
    }
    return test_main(faults_setup, sandbox_teardown);
}
