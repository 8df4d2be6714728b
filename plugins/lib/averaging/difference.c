/* difference.c - see difference.h. */
#include "lib/averaging/difference.h"

#include <stdlib.h>
#include <string.h>

/* Arrays in each inbox from start_at on. Late meetings have all of them. */
enum { START, VELOCITY, GIVEN, SUM, RESIDUAL_BEFORE, AREAS };

/* An exchange of messages, as coded.h counts it. */
struct moment {
    uint64_t exchange; /* its messages' bank, and the count of its signals */
    double step;
};

struct difference {
    struct dpb_coded coded; /* first */
    bool late, meets;       /* meets: in this step */
    uint64_t start_at;
    void (*move)(struct dpb_strategy *strategy, struct dpb_piece piece);
    /* Late: the exchange that this step's meeting begins, or that is under way; in a step with a
     * meeting the exchange before it. Their numbers rise from `bind` on. */
    struct moment now, before;
    /* By bucket: rounds of the exchange under way whose sum is known. None is above that of the
     * bucket before: the flag that says of a bucket that it was answered says it of all before. */
    uint32_t *taken;
};

static struct difference *of(const struct dpb_strategy *self)
{
    return (struct difference *)(void *)self->client;
}

static const struct dpb_coded_carrier *carrier_of(const struct dpb_strategy *self)
{
    return of(self)->coded.carrier;
}

static uint32_t rounds_of(const struct dpb_strategy *self)
{
    return dpb_coded_rounds(self->args.codec);
}

static float *area_at(const struct dpb_strategy *self, uint32_t area, uint64_t at)
{
    const struct dpb_arenas *arenas = &self->arenas;
    const uint64_t bytes = dpb_strategy_lines(arenas->layout.n_elements * sizeof(float));
    return (float *)(void *)((char *)arenas->inbox + of(self)->start_at + area * bytes) + at;
}

static struct dpb_piece piece_of(const struct dpb_strategy *self, uint64_t bucket)
{
    return (struct dpb_piece){bucket * self->arenas.bucket_elements,
                              dpb_pipeline_bucket_length(&self->pipeline, bucket)};
}

/* y = a x + b y. */
static void axpby(const struct dpb_strategy *self, double a, const float *x, double b, float *y,
                  uint64_t n)
{
    self->host->vec->axpby(DPB_FP32, a, x, b, y, n);
}

static void encode_round(struct dpb_strategy *self, uint64_t bucket, uint32_t round)
{
    dpb_coded_encode(self, bucket, round);
    carrier_of(self)->post(self, bucket, round);
}

/* ---- stage: the own update ------------------------------------------------------------------ */

/* With norms of whole tensors the last range updates all weights. */
static void update(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    const struct dpb_strategy *self = strategy;
    if (!self->args.whole) {
        dpb_strategy_update_bucket(strategy, bucket, turn);
        return;
    }
    dpb_strategy_make_weights(strategy, bucket, bucket * self->arenas.bucket_elements,
                              turn->length);
    turn->at = turn->length;
}

static void update_and_encode(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct dpb_strategy *self = strategy;
    const struct dpb_piece piece = piece_of(self, bucket);
    float *difference = dpb_strategy_own_gradients(strategy, piece.begin);
    update(strategy, bucket, turn);
    if (turn->at < turn->length || !of(self)->meets)
        return;
    memcpy(difference, dpb_strategy_own_weights(strategy, piece.begin),
           piece.n * sizeof *difference);
    axpby(self, -1.0, area_at(self, START, piece.begin), 1.0, difference, piece.n);
    encode_round(self, bucket, 0);
}

/* ---- stages: gather and decode a round; move; leave ----------------------------------------- */

static bool are_here(const struct dpb_strategy *self, uint64_t bucket, uint32_t round)
{
    return !of(self)->meets || carrier_of(self)->here(self, bucket, round);
}

static bool first_due(void *strategy, uint64_t bucket)
{
    return are_here(strategy, bucket, 0);
}

static dpb_status first_wait(void *strategy, uint64_t bucket)
{
    return carrier_of(strategy)->wait(strategy, bucket, 0);
}

static void answer(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct dpb_strategy *self = strategy;
    turn->at = turn->length;
    if (!of(self)->meets)
        return;
    carrier_of(self)->take(strategy, bucket, 0);
    encode_round(self, bucket, 1);
}

static bool second_due(void *strategy, uint64_t bucket)
{
    return are_here(strategy, bucket, 1);
}

static dpb_status second_wait(void *strategy, uint64_t bucket)
{
    return carrier_of(strategy)->wait(strategy, bucket, 1);
}

/* The new weights of all replicas, from the sum of what the messages decode to. */
static void move_by(struct dpb_strategy *self, const float *sum, struct dpb_piece piece)
{
    float *weights = dpb_strategy_own_weights(self, piece.begin);
    memcpy(weights, area_at(self, START, piece.begin), piece.n * sizeof *weights);
    axpby(self, 1.0 / self->args.n_workers, sum, 1.0, weights, piece.n);
    of(self)->move(self, piece);
}

/* The sum of a codec need not be 0 between tensors, where no device writes gradients. */
static void move(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct dpb_strategy *self = strategy;
    const struct dpb_piece piece = piece_of(self, bucket);
    float *sum = dpb_strategy_own_gradients(self, piece.begin);
    turn->at = turn->length;
    if (!of(self)->meets)
        return;
    carrier_of(self)->take(strategy, bucket, rounds_of(self) - 1);
    if (dpb_coded_status(self) != DPB_OK)
        return;
    move_by(self, sum, piece);
    memset(sum, 0, piece.n * sizeof *sum);
    dpb_signals_raise(&self->signals, DPB_SIGNAL_REDUCED, bucket);
}

static bool leave_due(void *strategy, uint64_t bucket)
{
    const struct dpb_strategy *self = strategy;
    return !of(self)->meets || (dpb_coded_status(strategy) == DPB_OK &&
                                dpb_strategy_all_reached(strategy, DPB_SIGNAL_REDUCED, bucket));
}

static dpb_status leave_wait(void *strategy, uint64_t bucket)
{
    DPB_TRY(dpb_coded_status(strategy));
    return dpb_strategy_wait(strategy, DPB_SIGNAL_REDUCED, dpb_strategy_workers(strategy), bucket,
                             DPB_FP32, "the peer to decode its messages");
}

/* ---- late: stages of each step -------------------------------------------------------------- */

/* Sets the moment of which coded.h works; returns that of the step. */
static struct moment go_to(struct dpb_strategy *self, struct moment moment)
{
    struct difference *d = of(self);
    const struct moment was = {self->signals.exchange, d->coded.steps};
    self->signals.exchange = moment.exchange;
    d->coded.steps = moment.step;
    return was;
}

static struct moment under_way(const struct dpb_strategy *self)
{
    return of(self)->meets ? of(self)->before : of(self)->now;
}

static bool is_here_late(struct dpb_strategy *self, uint64_t bucket, uint32_t round,
                         struct moment moment)
{
    const struct moment was = go_to(self, moment);
    const bool here = carrier_of(self)->here(self, bucket, round);
    go_to(self, was);
    return here;
}

static dpb_status wait_late(struct dpb_strategy *self, uint64_t bucket, uint32_t round,
                            struct moment moment)
{
    const struct moment was = go_to(self, moment);
    const dpb_status status = carrier_of(self)->wait(self, bucket, round);
    go_to(self, was);
    return status;
}

/* The gradients' place is free: the own update has used them. */
static void take_late(struct dpb_strategy *self, uint64_t bucket, uint32_t round,
                      struct moment moment)
{
    const struct dpb_piece piece = piece_of(self, bucket);
    const size_t bytes = piece.n * sizeof(float);
    float *room = dpb_strategy_own_gradients(self, piece.begin);
    const struct moment was = go_to(self, moment);
    memcpy(room, area_at(self, GIVEN, piece.begin), bytes);
    carrier_of(self)->take(self, bucket, round);
    if (round + 1 < rounds_of(self))
        encode_round(self, bucket, round + 1);
    else
        memcpy(area_at(self, SUM, piece.begin), room, bytes);
    memset(room, 0, bytes);
    of(self)->taken[bucket] = round + 1;
    go_to(self, was);
}

static bool round_due(struct dpb_strategy *self, uint64_t bucket, uint32_t round)
{
    return !of(self)->meets || of(self)->taken[bucket] > round ||
           is_here_late(self, bucket, round, under_way(self));
}

static bool first_late_due(void *strategy, uint64_t bucket)
{
    return round_due(strategy, bucket, 0);
}

static bool second_late_due(void *strategy, uint64_t bucket)
{
    return dpb_coded_status(strategy) == DPB_OK && round_due(strategy, bucket, 1);
}

static dpb_status first_late_wait(void *strategy, uint64_t bucket)
{
    return wait_late(strategy, bucket, 0, under_way(strategy));
}

static dpb_status second_late_wait(void *strategy, uint64_t bucket)
{
    DPB_TRY(dpb_coded_status(strategy));
    return wait_late(strategy, bucket, 1, under_way(strategy));
}

/* In a step that meets, the stage has waited for it, and the bucket before may have begun anew. */
static bool is_next(const struct dpb_strategy *self, uint64_t bucket, uint32_t round)
{
    return of(self)->meets || bucket == 0 || of(self)->taken[bucket - 1] > round;
}

/* Takes the bucket's next round, if its messages are here. */
static void advance(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct dpb_strategy *self = strategy;
    const uint32_t round = of(self)->taken[bucket];
    turn->at = turn->length;
    if (round < rounds_of(self) && is_next(self, bucket, round) &&
        is_here_late(self, bucket, round, under_way(self)))
        take_late(self, bucket, round, under_way(self));
}

static bool meet_late_due(void *strategy, uint64_t bucket)
{
    (void)bucket;
    return dpb_coded_status(strategy) == DPB_OK;
}

static dpb_status meet_late_wait(void *strategy, uint64_t bucket)
{
    (void)bucket;
    return dpb_coded_status(strategy);
}

static void meet_late(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct dpb_strategy *self = strategy;
    const struct dpb_piece piece = piece_of(self, bucket);
    const size_t bytes = piece.n * sizeof(float);
    float *own = dpb_strategy_own_gradients(strategy, piece.begin);
    float *weights = dpb_strategy_own_weights(strategy, piece.begin);
    float *given = area_at(self, GIVEN, piece.begin);
    turn->at = turn->length;
    if (!of(self)->meets)
        return;
    memcpy(own, weights, bytes);
    axpby(self, -1.0, area_at(self, START, piece.begin), 1.0, own, piece.n);
    axpby(self, -1.0, given, 1.0, own, piece.n);
    move_by(self, area_at(self, SUM, piece.begin), piece);
    axpby(self, 1.0, own, 1.0, weights, piece.n);
    memcpy(given, own, bytes);
    memcpy(area_at(self, RESIDUAL_BEFORE, piece.begin), of(self)->coded.residual + piece.begin,
           bytes);
    const struct moment was = go_to(self, of(self)->now);
    encode_round(self, bucket, 0);
    go_to(self, was);
    of(self)->taken[bucket] = 0;
    memset(own, 0, bytes);
}

dpb_status dpb_difference_finish(struct dpb_strategy *self)
{
    if (!of(self) || !of(self)->late)
        return DPB_OK;
    for (uint64_t bucket = 0; bucket < self->arenas.n_buckets; bucket++)
        for (uint32_t round; (round = of(self)->taken[bucket]) < rounds_of(self);) {
            if (!is_here_late(self, bucket, round, of(self)->now))
                DPB_TRY(wait_late(self, bucket, round, of(self)->now));
            else
                take_late(self, bucket, round, of(self)->now);
            DPB_TRY(dpb_coded_status(self));
        }
    return DPB_OK;
}

/* ---- a codec that loses nothing ------------------------------------------------------------- */

static uint64_t whole_bound(const void *options, uint64_t n)
{
    (void)options;
    return n * sizeof(float);
}

static uint64_t whole_encode(const void *options, const struct dpb_codec_part *part,
                             const float *gradients, float *residual, void *message)
{
    float *values = message;
    (void)options;
    for (uint64_t i = 0; i < part->n; i++) {
        values[i] = gradients[i] + residual[i];
        residual[i] = 0;
    }
    return part->n * sizeof *values;
}

static dpb_status whole_decode(const void *options, const struct dpb_codec_part *part,
                               const void *message, uint64_t bytes, float *sum)
{
    const float *values = message;
    (void)options, (void)bytes;
    for (uint64_t i = 0; i < part->n; i++)
        sum[i] += values[i];
    return DPB_OK;
}

struct dpb_comm_args dpb_difference_args(const struct dpb_comm_args *args, bool late)
{
    static const struct dpb_codec_ops ops = {
        .bound = whole_bound, .encode = whole_encode, .decode = whole_decode};
    static const struct dpb_codec_options options = {.feedback = true};
    static const struct dpb_codec whole = {.name = "none", .ops = &ops, .options = &options};
    struct dpb_comm_args its = *args;
    if (late && !its.codec)
        its.codec = &whole;
    return its;
}

/* ---- life ---------------------------------------------------------------------------------- */

dpb_status dpb_difference_check(const struct dpb_host *host, const struct dpb_comm_args *args,
                                bool late, bool average_state)
{
    const struct dpb_codec *codec = args->codec;
    if (average_state && (codec || late))
        return host->fail(DPB_UNSUPPORTED,
                          "comm.average_state = yes with %s%s: the differences of weights are "
                          "exchanged, and none of the optimizer's state; leave one of them out",
                          codec ? "comm.codec = " : "comm.outer_late = 1",
                          codec ? codec->name : "");
    if (codec && codec->ops->velocity && codec->ops->velocity(codec->options))
        return host->fail(DPB_UNSUPPORTED,
                          "comm.codec = %s keeps a velocity of gradients, and a meeting encodes "
                          "the difference of weights, which has the optimizer's; leave "
                          "comm.codec_momentum out",
                          codec->name);
    return DPB_OK;
}

/* The difference and its residual are rounded, the message is taken off, and the sum is added. Late
 * also what was given before, and the difference that the new weights keep. */
uint32_t dpb_difference_roundings(const struct dpb_comm_args *args)
{
    return args->codec ? 8 + args->n_workers : 0;
}

uint32_t dpb_difference_areas(const struct dpb_comm_args *args, bool late, bool has_velocity)
{
    return late ? AREAS : has_velocity ? 2 : args->codec ? 1 : 0;
}

static void close(struct dpb_strategy *strategy)
{
    const struct difference *d = (const struct difference *)(void *)strategy->client;
    strategy->host->release(d->taken, strategy->arenas.n_buckets * sizeof *d->taken);
    dpb_coded_close(strategy);
}

dpb_status dpb_difference_open(struct dpb_strategy *self, bool late)
{
    DPB_TRY(dpb_coded_attach(self, sizeof(struct difference)));
    if (!self->client)
        return DPB_OK;
    self->client->close = close;
    of(self)->late = late;
    return DPB_OK;
}

/* The contract is that of replicas that meet. */
dpb_status dpb_difference_plan(struct dpb_strategy *self, const struct dpb_layout *layout,
                               struct dpb_comm_plan *want)
{
    const struct dpb_contract contract = want->contract;
    if (layout->weight_type != DPB_FP32 || layout->gradient_type != DPB_FP32)
        return self->host->fail(DPB_UNSUPPORTED,
                                "comm.outer_late = 1 exchanges differences in fp32; leave "
                                "comm.gradient out, and take run.precision = fp32, tf32 or bf16");
    DPB_TRY(dpb_coded_plan(self, layout, DPB_CODED_SHARED, want));
    want->contract = contract;
    return DPB_OK;
}

dpb_status
dpb_difference_bind(struct dpb_strategy *self, const struct dpb_arenas *arenas, uint64_t start_at,
                    void (*move_to)(struct dpb_strategy *strategy, struct dpb_piece piece))
{
    static const struct dpb_stage
        one[] = {{dpb_strategy_own_ready, update_and_encode, dpb_strategy_own_wait},
                 {first_due, move, first_wait},
                 {leave_due, NULL, leave_wait}},
        two[] = {{dpb_strategy_own_ready, update_and_encode, dpb_strategy_own_wait},
                 {first_due, answer, first_wait},
                 {second_due, move, second_wait},
                 {leave_due, NULL, leave_wait}},
        one_late[] = {{dpb_strategy_own_ready, update, dpb_strategy_own_wait},
                      {first_late_due, advance, first_late_wait},
                      {meet_late_due, meet_late, meet_late_wait}},
        two_late[] = {{dpb_strategy_own_ready, update, dpb_strategy_own_wait},
                      {first_late_due, advance, first_late_wait},
                      {second_late_due, advance, second_late_wait},
                      {meet_late_due, meet_late, meet_late_wait}};
    const bool twice = rounds_of(self) > 1, late = of(self)->late;
    of(self)->start_at = start_at;
    of(self)->move = move_to;
    of(self)->coded.carrier = &dpb_coded_shared;
    of(self)->taken = self->host->alloc(arenas->n_buckets * sizeof *of(self)->taken);
    if (!of(self)->taken)
        return DPB_NO_MEMORY;
    DPB_TRY(dpb_strategy_bind(self, arenas,
                              late    ? twice ? two_late : one_late
                              : twice ? two
                                      : one,
                              twice ? 4 : 3));
    return dpb_coded_bind(self);
}

void dpb_difference_load(struct dpb_strategy *self)
{
    if (!of(self) || !of(self)->late)
        return;
    for (uint32_t area = GIVEN; area < AREAS; area++)
        memset(area_at(self, area, 0), 0, self->arenas.layout.n_elements * sizeof(float));
    for (uint64_t bucket = 0; bucket < self->arenas.n_buckets; bucket++)
        of(self)->taken[bucket] = rounds_of(self);
}

/* The checkpoint's count is the strategy's, and dpb_coded counts this step once more. */
void dpb_difference_begin(struct dpb_strategy *self, double steps, bool meets)
{
    struct difference *d = of(self);
    if (!d)
        return;
    d->coded.steps = steps - 1;
    d->meets = meets;
    if (!meets)
        return;
    d->before = d->now;
    d->now = (struct moment){d->now.exchange + 1, steps};
}

void dpb_difference_books(const struct dpb_strategy *self, struct dpb_books *books)
{
    if (of(self))
        books->entries[books->n++] = (struct dpb_book){
            of(self)->late ? area_at(self, RESIDUAL_BEFORE, 0) : of(self)->coded.residual, DPB_FP32,
            1.0, false};
}

dpb_status dpb_difference_state(struct dpb_strategy *self, struct dpb_saved *saved)
{
    static const char *const late[] = {
        [GIVEN] = "given", [SUM] = "sum", [RESIDUAL_BEFORE] = "residual_before"};
    struct dpb_saved coded = {.n = 0};
    if (!of(self))
        return DPB_OK;
    DPB_TRY(dpb_coded_state(self, &coded));
    for (uint32_t i = 1; i < coded.n; i++) /* the first is the count of steps */
        saved->arrays[saved->n++] = coded.arrays[i];
    for (uint32_t area = GIVEN; of(self)->late && area < AREAS; area++)
        saved->arrays[saved->n++] =
            (struct dpb_saved_array){late[area], DPB_FP32, area == SUM,
                                     self->arenas.layout.n_elements, area_at(self, area, 0)};
    return DPB_OK;
}
