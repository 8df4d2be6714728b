/*
 * gossip - every worker trains a replica of its own. Every comm.period steps it takes the mean of
 * its weights and one partner's.
 *
 *     each step:         w_i <- optimizer(w_i, g_i)
 *     round r:           w_i, w_j <- (w_i + w_j) / 2                  (averaging.h)
 *
 * The matching is symmetric, so the sum of all weights does not change. comm.matching = ring: the
 * workers stand in a circle that turns by one position each round; neighbours at positions 2k and
 * 2k + 1 are partners. random: each round has a permutation, the same on all workers. With an odd
 * number of workers one worker has no partner. The model is the mean of all weights.
 *
 * Bytes moved per round and rank, M bytes of weights: M/2 read and M/2 written; with
 * comm.average_state as many again for each array of the optimizer's state.
 *
 * Boyd, Ghosh, Prabhakar, Shah: Randomized gossip algorithms. IEEE Trans. Inf. Theory 52, 2006.
 * Lian et al.: Can decentralized algorithms outperform centralized algorithms? NIPS 2017.
 */
#include "dpbench/random.h"
#include "lib/averaging/averaging.h"

enum matching { RING, RANDOM };
static const char *const matchings[] = {"ring", "random", NULL};

static const struct dpb_option option_rows[] = {
    {"period", DPB_OPT_INT, "steps", "1", 1, 4096, NULL, DPB_AVERAGING_AT(period),
     DPB_AVERAGING_PERIOD, NULL},
    {"matching", DPB_OPT_CHOICE, NULL, "ring", 0, 0, matchings, DPB_AVERAGING_AT(matching),
     "partners: neighbours in a circle that turns, or at random", NULL},
    {"average_state", DPB_OPT_BOOL, NULL, "no", 0, 0, NULL, DPB_AVERAGING_AT(average_state),
     DPB_AVERAGING_STATE, NULL},
    {"seed", DPB_OPT_INT, NULL, "1", 0, 1e18, NULL, DPB_AVERAGING_AT(seed), "of random partners",
     "comm.matching = random"},
    {0}};

/* ---- partners ------------------------------------------------------------------------------ */

/* The workers at positions 2k and 2k + 1 are partners; the last of an odd number has none. */
static uint32_t neighbour_of(uint32_t position, uint32_t n)
{
    return (position ^ 1) < n ? position ^ 1 : position;
}

static uint32_t ring_partner(const struct dpb_averaging *self, uint64_t round)
{
    const uint32_t n = self->job.n_workers, turn = (uint32_t)(round % n);
    return (neighbour_of((self->job.rank + turn) % n, n) + n - turn) % n;
}

/* Fisher and Yates. */
static uint32_t random_partner(const struct dpb_averaging *self, uint64_t round)
{
    const uint32_t n = self->job.n_workers;
    uint32_t at[DPB_STRATEGY_WORKERS] = {0}, position = 0;
    for (uint32_t i = 0; i < n; i++)
        at[i] = i;
    for (uint32_t i = n; i > 1; i--) {
        const struct dpb_random4 word = dpb_random(self->rule.seed, DPB_STREAM_GOSSIP,
                                                   (uint32_t)round, (uint32_t)(round >> 32), i, 0);
        const uint32_t j = (uint32_t)((uint64_t)word.v[0] * i >> 32), moved = at[j];
        at[j] = at[i - 1];
        at[i - 1] = moved;
    }
    while (at[position] != self->job.rank)
        position++;
    return at[neighbour_of(position, n)];
}

/* ---- plugin -------------------------------------------------------------------------------- */

static struct dpb_averaging_rule rule_of(const void *given, const struct dpb_comm_args *args)
{
    const struct dpb_averaging_options *options = given;
    (void)args;
    return (struct dpb_averaging_rule){.period = (uint64_t)options->period,
                                       .partner = options->matching == RING ? ring_partner
                                                                            : random_partner,
                                       .average_state = options->average_state,
                                       .seed = (uint64_t)options->seed};
}

DPB_AVERAGING_PLUGIN(
    rule_of, .name = "gossip", .version = DPB_VERSION,
    .summary = "replicas; each round every worker averages its weights with one partner's",
    .options = option_rows, .options_size = sizeof(struct dpb_averaging_options));
