/* averaging_stages.c - the way of a bucket: see averaging.h. */
#include "lib/averaging/averaging_parts.h"
#include "lib/strategy/slices.h"

/* ---- work ---------------------------------------------------------------------------------- */

static dpb_dtype type_of(const struct work *work)
{
    return work->self->comm.base.arenas.layout.weight_type;
}

static struct dpb_queue *queue_of(const struct work *work)
{
    return work->self->comm.flights[work->flight].lane->queue;
}

static bool is_near(const struct averaging *self, uint32_t owner)
{
    return self->comm.in_place || owner == self->comm.base.args.rank;
}

static void count(const struct work *work, uint32_t owner)
{
    if (owner != work->self->comm.base.args.rank)
        work->self->comm.base.host->count_bytes(averaging_bytes(work->self, work->n));
}

void averaging_copy(const struct work *work, void *to, const void *from, uint32_t owner)
{
    struct device_strategy *comm = &work->self->comm;
    if (comm->status == DPB_OK)
        device_keep(
            comm, comm->ops->copy(queue_of(work), to, from, averaging_bytes(work->self, work->n)));
    count(work, owner);
}

void averaging_axpby(const struct work *work, double a, const void *x, double b, void *y)
{
    struct device_strategy *comm = &work->self->comm;
    if (comm->status == DPB_OK)
        device_keep(comm, comm->ops->axpby(queue_of(work), type_of(work), a, x, b, y, work->n));
}

void averaging_sum(const struct work *work, void *to, const void *const *sources, uint32_t k)
{
    struct device_strategy *comm = &work->self->comm;
    if (comm->status == DPB_OK)
        device_keep(comm, comm->ops->sum(queue_of(work), type_of(work), to, sources, k, work->n));
}

void *averaging_room(const struct work *work, void *far, uint32_t owner, uint32_t slot)
{
    const struct averaging *self = work->self;
    return is_near(self, owner) ? far
                                : (char *)self->comm.base.arenas.inbox + self->staging_at +
                                      slot * strategy_lines(averaging_bytes(self, work->n));
}

void *averaging_get(const struct work *work, void *far, uint32_t owner, uint32_t slot)
{
    void *near = averaging_room(work, far, owner, slot);
    if (near == far)
        count(work, owner);
    else
        averaging_copy(work, near, far, owner);
    return near;
}

void averaging_put(const struct work *work, void *far, uint32_t owner, const void *near)
{
    if (near == far)
        count(work, owner);
    else
        averaging_copy(work, far, near, owner);
}

void averaging_clear(const struct work *work, void *to)
{
    struct device_strategy *comm = &work->self->comm;
    if (comm->status == DPB_OK)
        device_keep(comm,
                    comm->ops->clear(queue_of(work), to, averaging_bytes(work->self, work->n)));
}

/* ---- steps --------------------------------------------------------------------------------- */

static bool is_alone(const struct averaging *self)
{
    return self->peers.n == 1 && self->peers.first == self->comm.base.args.rank;
}

/* The ranks of a meeting, in their order: all, or this one and its partner. */
static uint32_t list_group(const struct averaging *self, uint32_t *ranks, uint32_t *place)
{
    const uint32_t rank = self->comm.base.args.rank, partner = self->peers.first;
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
    return self->meets ? self->peers : strategy_self(&self->comm.base);
}

static bool averages_state(const struct averaging *self)
{
    return self->meets && self->rule.average_state && averaging_optimizer(self);
}

/* Elements of the bucket to work on next: on a device all of them. */
static struct piece next_piece(const struct averaging *self, uint64_t bucket, uint64_t length,
                               uint64_t at)
{
    const struct strategy *base = &self->comm.base;
    if (self->comm.in_place)
        return strategy_piece(base, bucket, length, at, base->arenas.layout.weight_type);
    return (struct piece){bucket * base->arenas.bucket_elements + at, length - at};
}

static dpb_status wait_for(struct averaging *self, enum signal_kind kind, struct rank_set ranks,
                           uint64_t bucket, const char *purpose)
{
    const uint32_t missing = signals_missing(&self->comm.base.signals, kind, ranks, bucket);
    if (missing == UINT32_MAX)
        return self->comm.status;
    return device_wait_signal(&self->comm, kind, missing, bucket,
                              self->comm.base.arenas.layout.weight_type, purpose);
}

/* ---- stage: update the own weights --------------------------------------------------------- */

static bool update_due(void *strategy, uint64_t bucket)
{
    return device_has_room(strategy, DEVICE_UPDATES) && strategy_own_ready(strategy, bucket);
}

/* The step's gradients are those of the replica before. Nobody reads d before all have pushed. */
static void begin_anew(const struct work *work, struct piece piece)
{
    const struct averaging *self = work->self;
    const uint32_t rank = self->comm.base.args.rank;
    averaging_copy(work, strategy_weights(&self->comm.base, rank, piece.begin),
                   averaging_model(self, piece.begin), 0);
    if (rank == 0 && averaging_has_velocity(&self->rule))
        averaging_clear(work, averaging_velocity(self, piece.begin));
    if (self->rule.learners > 0 && averaging_first(&self->rule, rank) == rank)
        averaging_copy(work, averaging_place(self, rank, piece.begin),
                       averaging_model(self, piece.begin), 0);
}

/* c, of the weights before their update. Where replicas begin anew there is nothing between them
 * and their centre, and that of a place may be on its way. */
static void measure(const struct work *work, struct piece piece)
{
    const struct averaging *self = work->self;
    const uint32_t rank = self->comm.base.args.rank;
    void *c = averaging_own(self, rank, piece.begin);
    if (self->restarts) {
        averaging_clear(work, c);
        return;
    }
    if (self->rule.learners > 0)
        averaging_copy(work, c, averaging_place(self, rank, piece.begin),
                       averaging_first(&self->rule, rank));
    else
        averaging_copy(work, c, averaging_model(self, piece.begin), 0);
    averaging_axpby(work, self->rule.alpha, strategy_weights(&self->comm.base, rank, piece.begin),
                    -self->rule.alpha, c);
}

static void update_piece(struct averaging *self, uint64_t bucket, struct piece piece)
{
    const struct strategy *base = &self->comm.base;
    const struct work work = {self, DEVICE_UPDATES, piece.n};
    const uint32_t rank = base->args.rank;
    void *weights = strategy_weights(base, rank, piece.begin);
    if (self->restarts)
        begin_anew(&work, piece);
    if (self->meets && self->rule.centre)
        measure(&work, piece);
    if (self->comm.status == DPB_OK)
        device_keep(&self->comm,
                    base->host->optimizer->update(
                        base->arenas.optimizer, queue_of(&work),
                        (struct dpb_range){piece.begin, piece.begin + piece.n}, weights,
                        strategy_gradients(base, rank, piece.begin), bucket, &base->step));
    if (self->meets && self->rule.centre)
        averaging_axpby(&work, -1.0, averaging_own(self, rank, piece.begin), 1.0, weights);
    else if (averages_state(self))
        averaging_copy(&work, averaging_own(self, rank, piece.begin),
                       averaging_optimizer(self) + averaging_bytes(self, piece.begin), rank);
}

static void update_work(void *strategy, uint64_t bucket, struct stage_turn *turn)
{
    struct averaging *self = strategy;
    do {
        const struct piece piece = next_piece(self, bucket, turn->length, turn->at);
        update_piece(self, bucket, piece);
        turn->at += piece.n;
    } while (turn->at < turn->length && self->comm.base.host->now_ns() < turn->until_ns);
    if (turn->at == turn->length)
        device_begun(&self->comm, DEVICE_UPDATES, bucket, false);
}

/* ---- stage: the own slice of a meeting ----------------------------------------------------- */

static bool meet_due(void *strategy, uint64_t bucket)
{
    const struct averaging *self = strategy;
    return device_has_room(strategy, MEETS) &&
           signals_reached(&self->comm.base.signals, SIGNAL_PUSHED, group_of(self), bucket);
}

static dpb_status meet_wait(void *strategy, uint64_t bucket)
{
    return wait_for(strategy, SIGNAL_PUSHED, group_of(strategy), bucket, "the peer's update");
}

/* The mean of n workers' arrays into each of them. */
static void take_mean(const struct work *work, void *const *arrays, const uint32_t *ranks,
                      uint32_t n, uint32_t place)
{
    const void *sources[STRATEGY_WORKERS] = {NULL};
    void *own = arrays[place];
    for (uint32_t i = 0; i < n; i++)
        sources[i] = averaging_get(work, arrays[i], ranks[i], i);
    averaging_sum(work, own, sources, n);
    averaging_axpby(work, 1.0 / n, own, 0.0, own);
    for (uint32_t i = 0; i < n; i++)
        if (i != place)
            averaging_copy(work, arrays[i], own, ranks[i]);
}

static void meet_group(const struct work *work, struct piece piece)
{
    const struct averaging *self = work->self;
    uint32_t ranks[STRATEGY_WORKERS], place;
    void *arrays[STRATEGY_WORKERS] = {NULL};
    const uint32_t n = list_group(self, ranks, &place);
    for (uint32_t i = 0; i < n; i++)
        arrays[i] = strategy_weights(&self->comm.base, ranks[i], piece.begin);
    take_mean(work, arrays, ranks, n, place);
    for (uint32_t i = 0; i < n; i++)
        arrays[i] = averaging_own(self, ranks[i], piece.begin);
    if (averages_state(self))
        take_mean(work, arrays, ranks, n, place);
}

uint32_t averaging_slots(const struct averaging_rule *rule, uint32_t n_workers)
{
    return n_workers + (rule->centre ? 2 : 1) +
           (rule->learners > 0 ? n_workers / rule->learners : 0);
}

/* The places meet z once their learners have met y: both at once, with all of these weights, would
 * move y past both. */
static void move_places(const struct work *work, struct piece piece, void *z, void *d)
{
    const struct averaging *self = work->self;
    const uint32_t n = self->comm.base.args.n_workers, learners = self->rule.learners;
    const uint32_t n_places = n / learners;
    const double part = 1.0 / n_places;
    for (uint32_t place = 0, first = 0; place < n_places; place++, first += learners) {
        void *far = averaging_place(self, first, piece.begin);
        void *y = averaging_get(work, far, first, n + 2 + place);
        const void *sources[STRATEGY_WORKERS + 1] = {y};
        for (uint32_t i = 0; i < learners; i++)
            sources[i + 1] = averaging_get(work, averaging_own(self, first + i, piece.begin),
                                           first + i, first + i);
        averaging_sum(work, y, sources, learners + 1);
        averaging_axpby(work, part, y, 1.0, d);
        averaging_axpby(work, part, z, 1.0 - part, y);
        averaging_put(work, far, first, y);
    }
    averaging_axpby(work, -1.0, z, 1.0, d);
}

/* Without momentum of the centre, d is only the sum of all c: it goes to z at once. */
static void move_workers(const struct work *work, struct piece piece, void *d)
{
    const struct averaging *self = work->self;
    const uint32_t n = self->comm.base.args.n_workers;
    const void *sources[STRATEGY_WORKERS + 1] = {d};
    for (uint32_t rank = 0; rank < n; rank++)
        sources[rank + 1] = averaging_get(work, averaging_own(self, rank, piece.begin), rank, rank);
    averaging_sum(work, d, sources, n + 1);
}

static void move_centre(const struct work *work, struct piece piece)
{
    const struct averaging *self = work->self;
    const uint32_t n = self->comm.base.args.n_workers;
    const bool has_velocity = averaging_has_velocity(&self->rule);
    void *far_z = averaging_model(self, piece.begin);
    void *far_d = averaging_velocity(self, piece.begin);
    void *z = averaging_get(work, far_z, 0, n);
    void *d = has_velocity ? averaging_get(work, far_d, 0, n + 1) : z;
    if (has_velocity)
        averaging_axpby(work, self->rule.centre_momentum, d, 0.0, d);
    if (self->rule.learners > 0)
        move_places(work, piece, z, d);
    else
        move_workers(work, piece, d);
    if (has_velocity) {
        averaging_axpby(work, 1.0, d, 1.0, z);
        averaging_put(work, far_d, 0, d);
    }
    averaging_put(work, far_z, 0, z);
}

static void meet_slice(struct averaging *self, uint64_t bucket, struct stage_turn *turn)
{
    const struct dpb_host *host = self->comm.base.host;
    uint32_t ranks[STRATEGY_WORKERS], place;
    const uint32_t n = list_group(self, ranks, &place);
    const struct dpb_range slice = slice_of(turn->length, place, n);
    if (turn->at == 0)
        turn->at = slice.begin;
    while (turn->at < slice.end && host->now_ns() < turn->until_ns) {
        const int64_t began_ns = host->now_ns();
        const struct piece piece = next_piece(self, bucket, slice.end, turn->at);
        const struct work work = {self, MEETS, piece.n};
        if (self->rule.centre)
            move_centre(&work, piece);
        else
            meet_group(&work, piece);
        if (self->comm.in_place)
            host->span(bucket, DPB_PHASE_REDUCE, began_ns, host->now_ns());
        turn->at += piece.n;
    }
    if (turn->at >= slice.end)
        turn->at = turn->length;
}

static void meet_work(void *strategy, uint64_t bucket, struct stage_turn *turn)
{
    struct averaging *self = strategy;
    const bool any = self->meets && (self->rule.centre || !is_alone(self));
    if (any && turn->at == 0)
        signals_span_late(&self->comm.base.signals, SIGNAL_PUSHED, self->peers, bucket);
    if (any)
        meet_slice(self, bucket, turn);
    else
        turn->at = turn->length;
    if (turn->at == turn->length)
        device_begun(&self->comm, MEETS, bucket, !any);
}

/* ---- stage: all slices are there ----------------------------------------------------------- */

/* The last bucket waits for the step of all workers, too. */
static bool take_due(void *strategy, uint64_t bucket)
{
    const struct strategy *base = strategy;
    return device_has_room(strategy, TAKES) &&
           signals_reached(&base->signals, SIGNAL_REDUCED, group_of(strategy), bucket) &&
           (!strategy_is_last(base, bucket) ||
            signals_reached(&base->signals, SIGNAL_PUSHED, strategy_workers(base), bucket));
}

static dpb_status take_wait(void *strategy, uint64_t bucket)
{
    struct averaging *self = strategy;
    if (!signals_reached(&self->comm.base.signals, SIGNAL_REDUCED, group_of(self), bucket))
        return wait_for(self, SIGNAL_REDUCED, group_of(self), bucket, "the peer's slice");
    return wait_for(self, SIGNAL_PUSHED, strategy_workers(&self->comm.base), bucket,
                    "the peer's step");
}

static void take_work(void *strategy, uint64_t bucket, struct stage_turn *turn)
{
    struct averaging *self = strategy;
    const struct strategy *base = strategy;
    const uint64_t begin = bucket * base->arenas.bucket_elements;
    const bool any = averages_state(self);
    strategy_span_others(base, SIGNAL_REDUCED, SIGNAL_REDUCED, group_of(self), bucket);
    const bool met_all = self->meets && self->peers.n == base->args.n_workers;
    if (strategy_is_last(base, bucket) && !met_all) /* else meet_work has reported it */
        signals_span_late(&base->signals, SIGNAL_PUSHED, strategy_workers(base), bucket);
    if (any)
        averaging_copy(&(struct work){self, TAKES, turn->length},
                       averaging_optimizer(self) + averaging_bytes(self, begin),
                       averaging_own(self, base->args.rank, begin), base->args.rank);
    device_begun(&self->comm, TAKES, bucket, !any);
    turn->at = turn->length;
}

const struct stage averaging_stages[AVERAGING_STAGES] = {
    {update_due, update_work, strategy_own_wait},
    {meet_due, meet_work, meet_wait},
    {take_due, take_work, take_wait}};

static const struct stage_flight met = {MEETS, DPB_PHASE_REDUCE, "its device to average"};
static const struct stage_flight taken = {TAKES, DPB_PHASE_UPDATE, "its device to copy the mean"};

const struct stage_flight *const averaging_flights[AVERAGING_STAGES] = {&device_updated, &met,
                                                                        &taken};
