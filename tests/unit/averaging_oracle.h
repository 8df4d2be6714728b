/*
 * averaging_oracle.h - local_sgd, easgd, sma, gossip and DiLoCo as their papers write them: all
 * workers one after the other, in float64, a vector at a time. Shares nothing with
 * plugins/lib/averaging/averaging.c. A codec encodes the differences by its own text, in fp32.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dpbench/codec.h"

enum rule { LOCAL_SGD, EASGD, SMA, GOSSIP, OUTER };
enum { ORACLE_WORKERS = 5, ORACLE_ELEMENTS = 1003 };

struct oracle_args {
    enum rule rule;
    uint32_t n_workers;
    uint64_t period;
    bool adam;                     /* the workers' AdamW; else SGD */
    double rate, momentum, decay;  /* of the workers; AdamW's beta1 is `momentum` */
    uint64_t drop_at;              /* the step from which on the rate is a tenth */
    double alpha, centre_momentum; /* of easgd, sma */
    bool restarts;                 /* sma, where the rate drops */
    bool average_state;            /* all of it: of local_sgd, gossip, DiLoCo */
    uint32_t learners;             /* sma: of a place, which has a centre; 0: without */
    const struct dpb_codec *codec; /* of one round; NULL: none */
    uint64_t bucket;               /* elements that it encodes together */
    bool late;                     /* DiLoCo: a meeting takes the differences of the one before */
    uint32_t may_differ;           /* elements of a worker, in all steps together */
};

static const double oracle_beta2 = 0.97, oracle_epsilon = 1e-8; /* of AdamW */

typedef double vector[ORACLE_ELEMENTS];

struct oracle {
    struct oracle_args args;
    uint64_t steps, rounds;
    vector w[ORACLE_WORKERS], v[ORACLE_WORKERS]; /* v: as PyTorch's; AdamW's first moment */
    vector second[ORACLE_WORKERS];               /* AdamW's second moment */
    vector z, z_before, y[ORACLE_WORKERS];       /* y: of the places */
    vector outer;                                /* DiLoCo's velocity */
    float residual[ORACLE_WORKERS][ORACLE_ELEMENTS];
    vector given[ORACLE_WORKERS], mean_given; /* late: by the meeting before */
};

static void mean_of(const vector *vectors, uint32_t n, vector mean)
{
    memset(mean, 0, sizeof(vector));
    for (uint32_t k = 0; k < n; k++)
        for (int i = 0; i < ORACLE_ELEMENTS; i++)
            mean[i] += vectors[k][i] / n;
}

static void meet_at_mean(vector *vectors, uint32_t n)
{
    vector mean;
    mean_of(vectors, n, mean);
    for (uint32_t k = 0; k < n; k++)
        memcpy(vectors[k], mean, sizeof(vector));
}

/* The circle of all workers has turned by one place each round. */
static void meet_partners(const struct oracle *oracle, vector *vectors)
{
    const uint32_t n = oracle->args.n_workers, turned = (uint32_t)(oracle->rounds % n);
    for (uint32_t place = 0; place + 1 < n; place += 2) {
        double *a = vectors[(place + n - turned) % n], *b = vectors[(place + 1 + n - turned) % n];
        for (int i = 0; i < ORACLE_ELEMENTS; i++)
            a[i] = b[i] = (a[i] + b[i]) / 2;
    }
}

/* Nesterov's momentum of 0.9 and a rate of 0.7. */
static void meet_at_outer(struct oracle *oracle)
{
    vector mean;
    mean_of(oracle->w, oracle->args.n_workers, mean);
    for (int i = 0; i < ORACLE_ELEMENTS; i++) {
        const double gradient = oracle->z[i] - mean[i];
        oracle->outer[i] = 0.9 * oracle->outer[i] + gradient;
        oracle->z[i] -= 0.7 * (gradient + 0.9 * oracle->outer[i]);
    }
    for (uint32_t k = 0; k < oracle->args.n_workers; k++)
        memcpy(oracle->w[k], oracle->z, sizeof(vector));
}

/* The mean of what the workers' differences decode to. */
static void mean_of_messages(struct oracle *oracle, const vector *differences, vector mean)
{
    const struct oracle_args *args = &oracle->args;
    const struct dpb_codec *codec = args->codec;
    static _Thread_local _Alignas(DPB_CACHE_LINE) uint8_t message[64 * 1024];
    if (!codec) {
        mean_of(differences, args->n_workers, mean);
        return;
    }
    memset(mean, 0, sizeof(vector));
    for (uint32_t k = 0; k < args->n_workers; k++)
        for (uint64_t at = 0; at < ORACLE_ELEMENTS; at += args->bucket) {
            const uint64_t rest = ORACLE_ELEMENTS - at;
            const struct dpb_codec_part part = {.first = at,
                                                .n = rest < args->bucket ? rest : args->bucket,
                                                .step = oracle->steps,
                                                .rank = k,
                                                .n_workers = args->n_workers};
            float difference[ORACLE_ELEMENTS], decoded[ORACLE_ELEMENTS] = {0};
            for (uint64_t i = 0; i < part.n; i++)
                difference[i] = (float)differences[k][at + i];
            const uint64_t bytes = codec->ops->encode(codec->options, &part, difference,
                                                      oracle->residual[k] + at, message);
            if (codec->ops->decode(codec->options, &part, message, bytes, decoded) != DPB_OK)
                abort();
            for (uint64_t i = 0; i < part.n; i++)
                mean[at + i] += (double)decoded[i] / args->n_workers;
        }
}

/* Qsparse-local-SGD (Basu et al. 2019), algorithm 1: all w = z + the mean of what the differences
 * from z decode to. */
static void meet_by_codec(struct oracle *oracle)
{
    vector differences[ORACLE_WORKERS], mean;
    for (uint32_t k = 0; k < oracle->args.n_workers; k++)
        for (int i = 0; i < ORACLE_ELEMENTS; i++)
            differences[k][i] = oracle->w[k][i] - oracle->z[i];
    mean_of_messages(oracle, differences, mean);
    for (uint32_t k = 0; k < oracle->args.n_workers; k++)
        for (int i = 0; i < ORACLE_ELEMENTS; i++)
            oracle->w[k][i] = oracle->z[i] + mean[i];
    if (oracle->args.rule == LOCAL_SGD)
        memcpy(oracle->z, oracle->w[0], sizeof(vector));
}

/* The outer step by what the meeting before was given; each keeps its way since. */
static void meet_late(struct oracle *oracle)
{
    vector ways[ORACLE_WORKERS];
    for (uint32_t k = 0; k < oracle->args.n_workers; k++)
        for (int i = 0; i < ORACLE_ELEMENTS; i++) {
            ways[k][i] = oracle->w[k][i] - oracle->z[i] - oracle->given[k][i];
            oracle->w[k][i] = oracle->z[i] + oracle->mean_given[i];
        }
    meet_at_outer(oracle);
    for (uint32_t k = 0; k < oracle->args.n_workers; k++)
        for (int i = 0; i < ORACLE_ELEMENTS; i++)
            oracle->w[k][i] += ways[k][i];
    memcpy(oracle->given, ways, sizeof ways);
    mean_of_messages(oracle, ways, oracle->mean_given);
}

static void draw_to_centre(struct oracle *oracle, const vector *w_before)
{
    const struct oracle_args *args = &oracle->args;
    vector next;
    for (int i = 0; i < ORACLE_ELEMENTS; i++)
        next[i] = oracle->z[i] + args->centre_momentum * (oracle->z[i] - oracle->z_before[i]);
    for (uint32_t k = 0; k < args->n_workers; k++)
        for (int i = 0; i < ORACLE_ELEMENTS; i++) {
            const double c = args->alpha * (w_before[k][i] - oracle->z[i]);
            oracle->w[k][i] -= c;
            next[i] += c;
        }
    memcpy(oracle->z_before, oracle->z, sizeof(vector));
    memcpy(oracle->z, next, sizeof(vector));
}

/* Within each place, then among the places. */
static void draw_to_places(struct oracle *oracle, const vector *w_before)
{
    const struct oracle_args *args = &oracle->args;
    const uint32_t n_places = args->n_workers / args->learners;
    vector next;
    for (int i = 0; i < ORACLE_ELEMENTS; i++) {
        next[i] = oracle->z[i] + args->centre_momentum * (oracle->z[i] - oracle->z_before[i]);
        for (uint32_t q = 0; q < n_places; q++) {
            double *y = &oracle->y[q][i], y_before = *y;
            for (uint32_t k = q * args->learners; k < (q + 1) * args->learners; k++) {
                const double c = args->alpha * (w_before[k][i] - y_before);
                oracle->w[k][i] -= c;
                *y += c;
            }
            const double e = (*y - oracle->z[i]) / n_places;
            *y -= e;
            next[i] += e;
        }
    }
    memcpy(oracle->z_before, oracle->z, sizeof(vector));
    memcpy(oracle->z, next, sizeof(vector));
}

static double oracle_rate(const struct oracle_args *args, uint64_t step)
{
    return step < args->drop_at ? args->rate : args->rate / 10;
}

static void restart_at_centre(struct oracle *oracle)
{
    for (uint32_t k = 0; k < oracle->args.n_workers; k++)
        memcpy(oracle->w[k], oracle->z, sizeof(vector));
    for (uint32_t q = 0; q < ORACLE_WORKERS; q++)
        memcpy(oracle->y[q], oracle->z, sizeof(vector));
    memcpy(oracle->z_before, oracle->z, sizeof(vector));
}

/* Loshchilov, Hutter 2019, algorithm 2: the step before is `steps`. */
static void take_adam(struct oracle *oracle, uint32_t k, uint64_t i, double rate, double g)
{
    const double beta1 = oracle->args.momentum, beta2 = oracle_beta2;
    const double t = (double)oracle->steps + 1;
    double *w = &oracle->w[k][i], *m = &oracle->v[k][i], *s = &oracle->second[k][i];
    *m = beta1 * *m + (1 - beta1) * g;
    *s = beta2 * *s + (1 - beta2) * g * g;
    const double m_hat = *m / (1 - pow(beta1, t)), s_hat = *s / (1 - pow(beta2, t));
    *w -= rate * (m_hat / (sqrt(s_hat) + oracle_epsilon) + oracle->args.decay * *w);
}

static void take_sgd(struct oracle *oracle, uint32_t k, uint64_t i, double rate, double g)
{
    g += oracle->args.decay * oracle->w[k][i];
    oracle->v[k][i] = oracle->args.momentum * oracle->v[k][i] + g;
    oracle->w[k][i] -= rate * oracle->v[k][i];
}

static void average_state(struct oracle *oracle)
{
    vector *const states[] = {oracle->v, oracle->second};
    for (int i = 0; i < 2; i++)
        if (oracle->args.rule == GOSSIP)
            meet_partners(oracle, states[i]);
        else
            meet_at_mean(states[i], oracle->args.n_workers);
}

/* `gradient(worker, step, element)`. */
static void oracle_step(struct oracle *oracle, double (*gradient)(uint32_t, uint64_t, uint64_t))
{
    const struct oracle_args *args = &oracle->args;
    const double rate = oracle_rate(args, oracle->steps);
    vector before[ORACLE_WORKERS];
    if (args->restarts && oracle->steps == args->drop_at)
        restart_at_centre(oracle);
    memcpy(before, oracle->w, sizeof before);
    for (uint32_t k = 0; k < args->n_workers; k++)
        for (uint64_t i = 0; i < ORACLE_ELEMENTS; i++)
            (args->adam ? take_adam : take_sgd)(oracle, k, i, rate, gradient(k, oracle->steps, i));
    if (++oracle->steps % args->period != 0)
        return;
    if (args->codec && !args->late)
        meet_by_codec(oracle);
    if (args->rule == LOCAL_SGD)
        meet_at_mean(oracle->w, args->n_workers);
    if (args->rule == OUTER)
        (args->late ? meet_late : meet_at_outer)(oracle);
    if (args->average_state)
        average_state(oracle);
    if (args->rule == GOSSIP)
        meet_partners(oracle, oracle->w);
    if (args->learners > 0)
        draw_to_places(oracle, before);
    else if (args->rule == EASGD || args->rule == SMA)
        draw_to_centre(oracle, before);
    oracle->rounds++;
}

static void oracle_model(const struct oracle *oracle, vector model)
{
    if (oracle->args.rule == EASGD || oracle->args.rule == SMA)
        memcpy(model, oracle->z, sizeof(vector));
    else
        mean_of(oracle->w, oracle->args.n_workers, model);
}
