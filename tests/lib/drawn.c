/* drawn.c - see drawn.h. */
#include "lib/drawn.h"

#include <stdio.h>
#include <string.h>

#include "lib/test.h"
#include "lib/training.h"

enum { EXIT_USAGE = 2, EXIT_VERIFICATION = 3, LINE = 512 };

#define N(list) (sizeof(list) / sizeof *(list))

static uint32_t state;

static uint32_t below(size_t n)
{
    state = state * 1664525u + 1013904223u;
    return (uint32_t)((state >> 8) % n);
}

static bool once_in(uint32_t n)
{
    return below(n) == 0;
}

static const char *const models[] = {"tiny", "tiny_dense"};
static const char *const buckets[] = {"424", "1000", "4MiB"};
static const char *const rules[] = {"sgd optimizer.momentum=0",
                                    "sgd optimizer.momentum=0.9",
                                    "sgd optimizer.nesterov=yes",
                                    "adagrad",
                                    "adam",
                                    "rmsprop",
                                    "adamw optimizer.weight_decay=0.1",
                                    "lars",
                                    "lamb optimizer.weight_decay=0.1",
                                    "sgd optimizer.clip_norm=0.5"};
enum { N_PLAIN_RULES = 7 }; /* the others are by norms */

/* ---- right ones ------------------------------------------------------------------------------ */

static void draw_right(char line[LINE])
{
    static const char *const strategies[] = {"shm",
                                             "replicated",
                                             "ring_tcp",
                                             "ps_cpu",
                                             "ps_cpu run.servers=1",
                                             "ps_cpu run.servers=2",
                                             "hierarchical comm.hosts=rank",
                                             "local_sgd comm.period=3",
                                             "local_sgd comm.period=8 comm.average_state=yes",
                                             "gossip comm.period=2",
                                             "gossip comm.matching=random",
                                             "easgd comm.period=5",
                                             "sma",
                                             "sma comm.period=3",
                                             "diloco comm.period=4"};
    static const char *const codecs[] = {"fp8",
                                         "int8",
                                         "onebit",
                                         "powersgd",
                                         "qsgd",
                                         "threshold",
                                         "topk",
                                         "topk comm.codec_momentum=0.9",
                                         "int8 comm.codec_start_step=30"};
    static const char *const types[] = {"fp64", "fp32", "fp32", "fp32 comm.gradient=bf16"};
    int at = snprintf(line, LINE,
                      "run.steps=120 run.workers=%u comm.name=%s optimizer.name=%s model.name=%s "
                      "comm.bucket=%s run.precision=%s",
                      1 + below(5), strategies[below(N(strategies))], rules[below(N(rules))],
                      models[below(N(models))], buckets[below(N(buckets))], types[below(N(types))]);
    const char *const more[] = {
        once_in(3) ? " comm.late=1" : "",          once_in(3) ? " run.accumulate=2" : "",
        once_in(3) ? " run.comm_cores=1" : "",     once_in(4) ? " optimizer.schedule=cosine" : "",
        once_in(4) ? " comm.shard=optimizer" : "", once_in(8) ? " comm.codec_back=yes" : ""};
    for (size_t i = 0; i < N(more); i++)
        at += snprintf(line + at, LINE - (size_t)at, "%s", more[i]);
    if (once_in(2))
        snprintf(line + at, LINE - (size_t)at, " comm.codec=%s", codecs[below(N(codecs))]);
}

struct drawn_count drawn_right(uint32_t seed, unsigned n)
{
    struct drawn_count count = {0};
    for (; count.n < n; seed++) {
        struct training training;
        char line[LINE];
        state = seed;
        draw_right(line);
        train_anyway(&training, "run.batch=2 optimizer.learning_rate=0.01 run.seed=%u %s", seed + 1,
                     line);
        if (training.command.exit_code != EXIT_USAGE) {
            const char *steps = json_text_at(training.command.json, "verification.steps");
            if (training.command.exit_code != 0)
                fail_msg("seed %u: %s: exit %d: %s", seed, line, training.command.exit_code,
                         training.command.err);
            count.n++;
            count.ends += strcmp(steps, "pass") != 0;
        }
        training_free(&training);
    }
    return count;
}

/* ---- wrong ones ------------------------------------------------------------------------------ */

/* comm.place. By norms the last range of a step brings the update of all: no part has its own. A
 * server's weights are no worker's: a worker that spoils its own computes other gradients. */
enum { GRADIENTS, UPDATE, WEIGHTS };

struct drawn_count drawn_wrong(uint32_t seed, unsigned n)
{
    static const char *const strategies[] = {"shm",
                                             "ring_tcp",
                                             "ps_cpu",
                                             "ps_cpu run.servers=1",
                                             "shm comm.shard=optimizer",
                                             "shm comm.late=1",
                                             "ring_tcp comm.codec=topk",
                                             "shm comm.codec=int8",
                                             "shm comm.gradient=bf16",
                                             "local_sgd comm.period=4",
                                             "gossip comm.period=3",
                                             "easgd comm.period=5",
                                             "diloco comm.period=4"};
    struct drawn_count count = {0};
    for (; count.n < n; seed++) {
        struct training training;
        state = seed;
        const uint32_t rule = below(N(rules)), strategy = below(N(strategies));
        const bool norms = rule >= N_PLAIN_RULES, serves = strstr(strategies[strategy], "servers");
        const int other = norms && serves ? GRADIENTS : norms ? WEIGHTS : UPDATE;
        const int place = !norms && !serves ? -1 : once_in(2) ? GRADIENTS : other;
        train_anyway(&training,
                     "run.precision=fp32 run.steps=300 run.batch=2 optimizer.learning_rate=0.01 "
                     "comm.from=40 comm.until=290 comm.drawn=%u comm.place=%d run.workers=%u "
                     "run.seed=%u comm.name=mutant_seeded_%s optimizer.name=%s model.name=%s "
                     "comm.bucket=%s",
                     seed + 1, place, 2 + below(3), seed + 1, strategies[strategy], rules[rule],
                     models[below(N(models))], buckets[below(N(buckets))]);
        if (training.command.exit_code != EXIT_USAGE) {
            const bool caught = training.command.exit_code == EXIT_VERIFICATION;
            count.n++;
            count.caught += caught;
            if (!caught)
                print_message("not caught: %s\n%s\n", training.settings, training.command.err);
        }
        training_free(&training);
    }
    return count;
}
