/* averaging.c - see averaging.h. */
#include "lib/averaging.h"

#include <string.h>

#include "lib/slices.h"

/* Of rank 0 and of the others, in their scratch behind the signal page. */
struct meeting {
    struct dpb_flag arrived, averaged; /* publications of a mean */
};

/* ---- memory -------------------------------------------------------------------------------- */

static uint64_t weight_bytes(const struct averaging *self, uint64_t n)
{
    return n * dpb_dtype_size(self->base.arenas.layout.weight_type);
}

static struct meeting *meeting_of(const struct averaging *self, uint32_t rank)
{
    return (struct meeting *)(void *)((char *)self->base.arenas.peer_scratch[rank] + self->own_at) -
           1;
}

/* From arena element `at` on. */
static void *own_area(const struct averaging *self, uint32_t rank, uint64_t at)
{
    return (char *)self->base.arenas.peer_scratch[rank] + self->own_at + weight_bytes(self, at);
}

static void *model(const struct averaging *self, uint64_t at)
{
    return (char *)self->base.arenas.peer_scratch[0] + self->model_at + weight_bytes(self, at);
}

static void *velocity(const struct averaging *self, uint64_t at)
{
    return (char *)self->base.arenas.peer_scratch[0] + self->velocity_at + weight_bytes(self, at);
}

static char *optimizer_state(const struct averaging *self)
{
    const struct strategy *base = &self->base;
    return base->arenas.optimizer ? base->host->optimizer->state(base->arenas.optimizer, 0) : NULL;
}

static bool averages_state(const struct averaging *self)
{
    return self->rule.average_state && optimizer_state(self);
}

/* ---- contract ------------------------------------------------------------------------------ */

static bool takes_mean_of_all(const struct averaging_rule *rule)
{
    return !rule->centre && !rule->partner;
}

/* A meeting rounds a weight once for each worker, and twice for the factor and the difference. */
static struct dpb_contract contract_of(const struct averaging_rule *rule, uint32_t n_workers)
{
    const bool periodic = takes_mean_of_all(rule);
    const uint32_t period = (uint32_t)rule->period;
    return (struct dpb_contract){.consistency = periodic ? DPB_PERIODIC : DPB_AVERAGING,
                                 .parameter = period,
                                 .proof = periodic ? DPB_PROOF_SETTLES : DPB_PROOF_BOOKS,
                                 .settle_steps = periodic ? period - 1 : 0,
                                 .divisor = 1,
                                 .share = periodic ? 1.0 / n_workers : 1.0,
                                 .roundings = periodic ? n_workers + 2 * period : n_workers + 4,
                                 .replicas_equal = periodic};
}

/* ---- steps --------------------------------------------------------------------------------- */

static bool is_alone(const struct averaging *self)
{
    return self->peers.n == 1 && self->peers.first == self->base.args.rank;
}

/* The ranks that a meeting is of, in their order: all, or this one and its partner. */
static uint32_t list_group(const struct averaging *self, uint32_t *ranks, uint32_t *place)
{
    const uint32_t rank = self->base.args.rank, partner = self->peers.first;
    uint32_t n = 0;
    if (self->peers.n > 1 || is_alone(self))
        for (; n < self->peers.n; n++)
            ranks[n] = self->peers.first + n;
    else
        for (; n < 2; n++)
            ranks[n] = (n == 0) == (rank < partner) ? rank : partner;
    for (*place = 0; ranks[*place] != rank; ++*place)
        ;
    return n;
}

static struct rank_set group_of(const struct averaging *self)
{
    return self->meets ? self->peers : strategy_self(&self->base);
}

/* ---- stage: update the own weights --------------------------------------------------------- */

static bool update_due(void *strategy, uint64_t bucket)
{
    const struct strategy *base = strategy;
    return signals_reached(&base->signals, SIGNAL_READY, strategy_self(base), bucket);
}

static dpb_status update_wait(void *strategy, uint64_t bucket)
{
    return strategy_wait_ready(strategy, strategy_self(strategy), bucket);
}

/* c, of the weights before their update. */
static void measure(const struct averaging *self, struct piece piece)
{
    const struct strategy *base = &self->base;
    const dpb_dtype type = base->arenas.layout.weight_type;
    void *c = own_area(self, base->args.rank, piece.begin);
    base->host->vec->copy(type, c, strategy_weights(base, base->args.rank, piece.begin), piece.n);
    base->host->vec->axpby(type, -self->rule.alpha, model(self, piece.begin), self->rule.alpha, c,
                           piece.n);
    if (base->args.rank != 0)
        base->host->count_bytes(weight_bytes(self, piece.n));
}

/* The step's gradients are those of the replica before. */
static void begin_anew(const struct averaging *self, struct piece piece)
{
    const struct strategy *base = &self->base;
    base->host->vec->copy(base->arenas.layout.weight_type,
                          strategy_weights(base, base->args.rank, piece.begin),
                          model(self, piece.begin), piece.n);
    if (base->args.rank != 0)
        base->host->count_bytes(weight_bytes(self, piece.n));
}

static void update_piece(const struct averaging *self, uint64_t bucket, struct piece piece)
{
    const struct strategy *base = &self->base;
    const struct dpb_vec_ops *vec = base->host->vec;
    const dpb_dtype type = base->arenas.layout.weight_type;
    const uint32_t rank = base->args.rank;
    if (self->restarts)
        begin_anew(self, piece);
    if (self->meets && self->rule.centre)
        measure(self, piece);
    strategy_update(base, bucket, piece, strategy_gradients(base, rank, piece.begin));
    if (self->meets && self->rule.centre)
        vec->axpby(type, -1.0, own_area(self, rank, piece.begin), 1.0,
                   strategy_weights(base, rank, piece.begin), piece.n);
    else if (self->meets && averages_state(self))
        vec->copy(type, own_area(self, rank, piece.begin),
                  optimizer_state(self) + weight_bytes(self, piece.begin), piece.n);
}

static void update_work(void *strategy, uint64_t bucket, uint64_t length, uint64_t *at,
                        int64_t until_ns)
{
    const struct strategy *base = strategy;
    do {
        struct piece piece =
            strategy_piece(base, bucket, length, *at, base->arenas.layout.weight_type);
        update_piece(strategy, bucket, piece);
        *at += piece.n;
    } while (*at < length && base->host->now_ns() < until_ns);
    if (*at == length)
        signals_raise(&base->signals, SIGNAL_PUSHED, bucket);
}

/* ---- stage: the own slice of a meeting ----------------------------------------------------- */

static bool meet_due(void *strategy, uint64_t bucket)
{
    const struct averaging *self = strategy;
    return signals_reached(&self->base.signals, SIGNAL_PUSHED, group_of(self), bucket);
}

static dpb_status meet_wait(void *strategy, uint64_t bucket)
{
    const struct averaging *self = strategy;
    return strategy_wait(strategy, SIGNAL_PUSHED, group_of(self), bucket,
                         self->base.arenas.layout.weight_type, "the peer's update");
}

/* The mean of n arrays into each of them; the first is `arrays[place]`'s own memory. */
static void take_mean(const struct averaging *self, void *const *arrays, uint32_t n, uint32_t place,
                      uint64_t elements)
{
    const struct dpb_host *host = self->base.host;
    const dpb_dtype type = self->base.arenas.layout.weight_type;
    void *own = arrays[place];
    host->vec->sum(type, &own, 1, (const void *const *)arrays, n, elements);
    host->vec->axpby(type, 1.0 / n, own, 0.0, own, elements);
    for (uint32_t i = 0; i < n; i++)
        if (i != place)
            host->vec->copy(type, arrays[i], own, elements);
    host->count_bytes(2 * (uint64_t)(n - 1) * weight_bytes(self, elements));
}

static void meet_group(const struct averaging *self, struct piece piece)
{
    const struct strategy *base = &self->base;
    uint32_t ranks[STRATEGY_WORKERS], place;
    void *arrays[STRATEGY_WORKERS] = {NULL};
    const uint32_t n = list_group(self, ranks, &place);
    for (uint32_t i = 0; i < n; i++)
        arrays[i] = strategy_weights(base, ranks[i], piece.begin);
    take_mean(self, arrays, n, place, piece.n);
    for (uint32_t i = 0; i < n; i++)
        arrays[i] = own_area(self, ranks[i], piece.begin);
    if (averages_state(self))
        take_mean(self, arrays, n, place, piece.n);
}

/* Without momentum of the centre, d is only the sum of all c: it goes to z at once. */
static void move_centre(const struct averaging *self, struct piece piece)
{
    const struct strategy *base = &self->base;
    const struct dpb_vec_ops *vec = base->host->vec;
    const dpb_dtype type = base->arenas.layout.weight_type;
    const double momentum = self->rule.centre_momentum;
    const uint32_t n = base->args.n_workers;
    void *z = model(self, piece.begin);
    void *d = momentum > 0 ? velocity(self, piece.begin) : z;
    const void *sources[STRATEGY_WORKERS + 1] = {d};
    for (uint32_t rank = 0; rank < n; rank++)
        sources[rank + 1] = own_area(self, rank, piece.begin);
    if (momentum > 0)
        vec->axpby(type, momentum, d, 0.0, d, piece.n);
    vec->sum(type, &d, 1, sources, n + 1, piece.n);
    if (momentum > 0)
        vec->axpby(type, 1.0, d, 1.0, z, piece.n);
    const uint64_t elsewhere = base->args.rank == 0 ? 0 : momentum > 0 ? 4 : 2;
    base->host->count_bytes((n - 1 + elsewhere) * weight_bytes(self, piece.n));
}

static void meet_slice(const struct averaging *self, uint64_t bucket, uint64_t length, uint64_t *at,
                       int64_t until_ns)
{
    const struct strategy *base = &self->base;
    uint32_t ranks[STRATEGY_WORKERS], place;
    const uint32_t n = list_group(self, ranks, &place);
    const struct dpb_range slice = slice_of(length, place, n);
    if (*at == 0)
        *at = slice.begin;
    while (*at < slice.end && base->host->now_ns() < until_ns) {
        const int64_t began_ns = base->host->now_ns();
        struct piece piece =
            strategy_piece(base, bucket, slice.end, *at, base->arenas.layout.weight_type);
        if (self->restarts && self->rule.centre_momentum > 0)
            memset(velocity(self, piece.begin), 0, weight_bytes(self, piece.n));
        if (self->meets && self->rule.centre)
            move_centre(self, piece);
        else if (self->meets)
            meet_group(self, piece);
        base->host->span(bucket, DPB_PHASE_REDUCE, began_ns, base->host->now_ns());
        *at += piece.n;
    }
    if (*at >= slice.end)
        *at = length;
}

static void meet_work(void *strategy, uint64_t bucket, uint64_t length, uint64_t *at,
                      int64_t until_ns)
{
    const struct averaging *self = strategy;
    if (self->restarts || (self->meets && (self->rule.centre || !is_alone(self))))
        meet_slice(self, bucket, length, at, until_ns);
    else
        *at = length;
    if (*at == length)
        signals_raise(&self->base.signals, SIGNAL_REDUCED, bucket);
}

/* ---- stage: all slices are there ----------------------------------------------------------- */

static bool is_last(const struct averaging *self, uint64_t bucket)
{
    return bucket + 1 == self->base.arenas.n_buckets;
}

static bool take_due(void *strategy, uint64_t bucket)
{
    const struct averaging *self = strategy;
    const struct signals *signals = &self->base.signals;
    return signals_reached(signals, SIGNAL_REDUCED, group_of(self), bucket) &&
           (!is_last(self, bucket) ||
            signals_reached(signals, SIGNAL_PUSHED, strategy_workers(&self->base), bucket));
}

static dpb_status take_wait(void *strategy, uint64_t bucket)
{
    const struct averaging *self = strategy;
    const dpb_dtype type = self->base.arenas.layout.weight_type;
    if (!signals_reached(&self->base.signals, SIGNAL_REDUCED, group_of(self), bucket))
        return strategy_wait(strategy, SIGNAL_REDUCED, group_of(self), bucket, type,
                             "the peer's slice");
    return strategy_wait(strategy, SIGNAL_PUSHED, strategy_workers(&self->base), bucket, type,
                         "the peer's step");
}

static void take_work(void *strategy, uint64_t bucket, uint64_t length, uint64_t *at,
                      int64_t until_ns)
{
    const struct averaging *self = strategy;
    const struct strategy *base = strategy;
    const uint64_t begin = bucket * base->arenas.bucket_elements;
    (void)until_ns;
    if (self->meets && averages_state(self))
        base->host->vec->copy(base->arenas.layout.weight_type,
                              optimizer_state(self) + weight_bytes(self, begin),
                              own_area(self, base->args.rank, begin), length);
    *at = length;
}

static const struct stage stages[] = {{update_due, update_work, update_wait},
                                      {meet_due, meet_work, meet_wait},
                                      {take_due, take_work, take_wait}};

/* ---- hooks: life --------------------------------------------------------------------------- */

dpb_status averaging_open(const struct dpb_host *host, const struct dpb_comm_args *args,
                          const struct averaging_rule *rule, void **comm)
{
    if (rule->centre && rule->alpha * (1.0 + args->n_workers) > 2.0 * (1.0 + 1e-9))
        return host->fail(DPB_USAGE,
                          "comm.alpha = %g with %u workers: centre and replicas move past each "
                          "other further each time; it should be at most %g",
                          rule->alpha, args->n_workers, 2.0 / (1.0 + args->n_workers));
    DPB_TRY(strategy_open(host, args, sizeof(struct averaging), comm));
    ((struct averaging *)*comm)->rule = *rule;
    return DPB_OK;
}

/* Arrays as large as the weights in the scratch of this rank. */
static uint32_t count_areas(const struct averaging_rule *rule, uint32_t rank)
{
    const uint32_t of_all = rule->centre || rule->average_state;
    return of_all + (rank == 0 ? 1 + (rule->centre_momentum > 0) : 0);
}

void averaging_memory(const struct averaging_rule *rule, const struct dpb_comm_args *args,
                      const struct dpb_layout *layout, struct dpb_comm_memory *memory)
{
    const uint64_t area = strategy_lines(layout->n_elements * dpb_dtype_size(layout->weight_type));
    memory->host_bytes = count_areas(rule, args->rank) * area;
}

dpb_status averaging_plan(void *comm, const struct dpb_layout *layout, struct dpb_comm_plan *want)
{
    struct averaging *self = comm;
    const uint64_t area = strategy_lines(layout->n_elements * dpb_dtype_size(layout->weight_type));
    DPB_TRY(strategy_plan_replica(comm, layout, DPB_MEMORY_SHARED, want));
    want->weights = DPB_MEMORY_SHARED;
    want->gradients = DPB_MEMORY_PRIVATE;
    want->contract = contract_of(&self->rule, self->base.args.n_workers);
    self->own_at = strategy_lines(want->scratch_bytes) + sizeof(struct meeting);
    self->model_at = self->own_at + (self->rule.centre || self->rule.average_state ? area : 0);
    self->velocity_at = self->model_at + area;
    want->scratch_bytes = self->own_at + count_areas(&self->rule, self->base.args.rank) * area;
    return DPB_OK;
}

dpb_status averaging_bind(void *comm, const struct dpb_arenas *arenas)
{
    return strategy_bind(comm, arenas, stages, sizeof stages / sizeof *stages);
}

/* The centre begins at rest where all replicas do. */
dpb_status averaging_load(void *comm)
{
    struct averaging *self = comm;
    const struct strategy *base = comm;
    const struct dpb_layout *layout = &base->arenas.layout;
    self->steps = self->rate = 0;
    if (!self->rule.centre || base->args.rank != 0)
        return DPB_OK;
    base->host->vec->copy(layout->weight_type, model(self, 0), base->arenas.weights,
                          layout->n_elements);
    if (self->rule.centre_momentum > 0)
        memset(velocity(self, 0), 0, weight_bytes(self, layout->n_elements));
    return DPB_OK;
}

/* ---- hooks: step and model ----------------------------------------------------------------- */

dpb_status averaging_begin(void *comm, const struct dpb_step *step)
{
    struct averaging *self = comm;
    const double most = 0x1p53; /* what an fp64 counts to */
    if (!(self->steps >= 0 && self->steps < most) || self->steps != (double)(uint64_t)self->steps)
        return self->base.host->fail(
            DPB_FAILED, "the checkpoint's count of steps since the start is %g: it is damaged",
            self->steps);
    const uint64_t period = self->rule.period, n = (uint64_t)++self->steps;
    self->meets = n % period == 0;
    self->restarts = self->rule.restart > 0 && self->rate > 0 &&
                     step->learning_rate <= self->rule.restart * self->rate;
    self->rate = step->learning_rate;
    self->peers = strategy_workers(&self->base);
    if (self->meets && self->rule.partner)
        self->peers = (struct rank_set){self->rule.partner(self, n / period - 1), 1};
    return strategy_begin(comm, step);
}

static dpb_status await_all(const struct averaging *self, bool averaged)
{
    const struct strategy *base = &self->base;
    for (uint32_t rank = 0; rank < base->args.n_workers; rank++) {
        struct meeting *meeting = meeting_of(self, rank);
        const struct dpb_wait what = {.step = base->step.step,
                                      .bucket = UINT64_MAX,
                                      .peer = rank,
                                      .purpose = "the peer's part of the mean model"};
        DPB_TRY(base->host->flag->wait(averaged ? &meeting->averaged : &meeting->arrived,
                                       self->published, &what));
    }
    return DPB_OK;
}

/* Each worker averages its slice of all weights. */
static dpb_status publish_mean(struct averaging *self)
{
    const struct strategy *base = &self->base;
    const struct dpb_vec_ops *vec = base->host->vec;
    const struct dpb_layout *layout = &base->arenas.layout;
    const uint32_t n = base->args.n_workers;
    const struct dpb_range slice = slice_of(layout->n_elements, base->args.rank, n);
    const void *sources[STRATEGY_WORKERS];
    void *mean = model(self, slice.begin);
    self->published++;
    base->host->flag->set(&meeting_of(self, base->args.rank)->arrived, self->published);
    DPB_TRY(await_all(self, false));
    for (uint32_t rank = 0; rank < n; rank++)
        sources[rank] = strategy_weights(base, rank, slice.begin);
    vec->sum(layout->weight_type, &mean, 1, sources, n, slice.end - slice.begin);
    vec->axpby(layout->weight_type, 1.0 / n, mean, 0.0, mean, slice.end - slice.begin);
    base->host->flag->set(&meeting_of(self, base->args.rank)->averaged, self->published);
    return await_all(self, true);
}

/* Whether all replicas hold the same weights, as they do where a mean of all was the last step. */
static bool are_equal(const struct averaging *self)
{
    return self->base.args.n_workers == 1 || self->steps == 0 ||
           (takes_mean_of_all(&self->rule) && (uint64_t)self->steps % self->rule.period == 0);
}

dpb_status averaging_publish(void *comm, struct dpb_view *view)
{
    struct averaging *self = comm;
    if (!self->rule.centre && are_equal(self))
        return strategy_publish(comm, view);
    if (!self->rule.centre)
        DPB_TRY(publish_mean(self));
    view->weights = model(self, 0);
    return DPB_OK;
}

/* z(t + 1) - momentum z(t) moves by the sum of all c alone, and is (1 - momentum) z + momentum
 * d. */
dpb_status averaging_books(void *comm, struct dpb_books *books)
{
    const struct averaging *self = comm;
    const struct dpb_arenas *arenas = &self->base.arenas;
    const dpb_dtype type = arenas->layout.weight_type;
    const double momentum = self->rule.centre_momentum;
    books->entries[books->n++] = (struct dpb_book){arenas->weights, type, 1.0, false};
    if (!self->rule.centre || self->base.args.rank != 0)
        return DPB_OK;
    books->entries[books->n++] = (struct dpb_book){model(self, 0), type, 1.0 - momentum, false};
    if (momentum > 0)
        books->entries[books->n++] = (struct dpb_book){velocity(self, 0), type, momentum, false};
    return DPB_OK;
}

/* z is the published model, and `load` takes it from there. */
dpb_status averaging_state(void *comm, struct dpb_saved *saved)
{
    struct averaging *self = comm;
    const struct dpb_arenas *arenas = &self->base.arenas;
    const dpb_dtype type = arenas->layout.weight_type;
    const uint64_t n = arenas->layout.n_elements;
    void *momentum = optimizer_state(self);
    saved->arrays[saved->n++] = (struct dpb_saved_array){"steps", DPB_FP64, true, 1, &self->steps};
    saved->arrays[saved->n++] =
        (struct dpb_saved_array){"weights", type, false, n, arenas->weights};
    if (momentum)
        saved->arrays[saved->n++] = (struct dpb_saved_array){"optimizer", type, false, n, momentum};
    if (self->rule.restart > 0)
        saved->arrays[saved->n++] =
            (struct dpb_saved_array){"rate", DPB_FP64, true, 1, &self->rate};
    if (self->rule.centre_momentum > 0)
        saved->arrays[saved->n++] = (struct dpb_saved_array){
            "velocity", type, true, n, self->base.args.rank == 0 ? velocity(self, 0) : NULL};
    return DPB_OK;
}
