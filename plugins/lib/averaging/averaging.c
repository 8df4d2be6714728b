/* averaging.c - see averaging.h. */
#include <stdio.h>

#include "lib/averaging/averaging_parts.h"
#include "lib/strategy/slices.h"

static const struct dpb_host *host;
static averaging_rule_of rule_of;

/* ---- memory -------------------------------------------------------------------------------- */

uint64_t averaging_bytes(const struct averaging *self, uint64_t elements)
{
    return elements * dpb_dtype_size(self->comm.base.arenas.layout.weight_type);
}

/* The fences that the rank has reached. In its scratch behind the signal page. */
static struct dpb_flag *fence_of(const struct averaging *self, uint32_t rank)
{
    char *scratch = self->comm.base.arenas.peer_scratch[rank];
    return (struct dpb_flag *)(void *)(scratch + self->fence_at);
}

static void *in_inbox(const struct averaging *self, uint32_t rank, uint64_t area, uint64_t at)
{
    return (char *)self->comm.base.arenas.peer_inbox[rank] + area + averaging_bytes(self, at);
}

void *averaging_own(const struct averaging *self, uint32_t rank, uint64_t at)
{
    return in_inbox(self, rank, 0, at);
}

void *averaging_model(const struct averaging *self, uint64_t at)
{
    return in_inbox(self, 0, self->model_at, at);
}

void *averaging_place(const struct averaging *self, uint32_t rank, uint64_t at)
{
    return in_inbox(self, averaging_first(&self->rule, rank), self->place_at, at);
}

void *averaging_velocity(const struct averaging *self, uint64_t at)
{
    return in_inbox(self, 0, self->velocity_at, at);
}

char *averaging_optimizer(const struct averaging *self)
{
    const struct strategy *base = &self->comm.base;
    return base->arenas.optimizer ? base->host->optimizer->state(base->arenas.optimizer, 0) : NULL;
}

/* ---- contract ------------------------------------------------------------------------------ */

static bool takes_mean_of_all(const struct averaging_rule *rule)
{
    return !rule->centre && !rule->partner;
}

static uint32_t count_places(const struct averaging_rule *rule, uint32_t n_workers)
{
    return rule->learners > 0 ? n_workers / rule->learners : 0;
}

/* A meeting rounds a weight once for each worker, and twice for the factor and the difference; in
 * a place also three times for the centre of each place. */
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
                                 .roundings =
                                     periodic ? n_workers + 2 * period
                                              : n_workers + 4 + 3 * count_places(rule, n_workers),
                                 .replicas_equal = periodic};
}

/* ---- hooks: life --------------------------------------------------------------------------- */

static dpb_status averaging_needs(const void *options, struct dpb_comm_needs *needs)
{
    (void)options;
    needs->on_device = true;
    return DPB_OK;
}

/* Measured without gradients: by a larger alpha the distance of centre and replicas grows. With
 * momentum of z the centre of a place bears less than z. */
static dpb_status check_rule(const struct dpb_comm_args *args, const struct averaging_rule *rule)
{
    const double most = rule->learners > 0 ? 1.0 / rule->learners : 2.0 / (1.0 + args->n_workers);
    if (rule->period == 0)
        return host->fail(DPB_FAILED, "struct averaging_rule: a period has at least 1 step, not 0");
    if (rule->learners > 0 && count_places(rule, args->n_workers) < 2)
        return host->fail(DPB_USAGE,
                          "comm.local_centers = yes with one place: its centre has no others to "
                          "meet; take run.workers = 2 or more, or leave comm.local_centers out");
    if (rule->centre && rule->alpha > most * (1.0 + 1e-9))
        return host->fail(DPB_USAGE,
                          "comm.alpha = %g with %u %s: centre and replicas move past each "
                          "other further each time; it should be at most %g",
                          rule->alpha, rule->learners > 0 ? rule->learners : args->n_workers,
                          rule->learners > 0 ? "learners in a place" : "workers", most);
    return DPB_OK;
}

static dpb_status averaging_contract(const void *options, const struct dpb_comm_args *args,
                                     struct dpb_contract *contract)
{
    const struct averaging_rule rule = rule_of(options, args);
    DPB_TRY(check_rule(args, &rule));
    *contract = contract_of(&rule, args->n_workers);
    return DPB_OK;
}

static dpb_status averaging_open(const void *options, const struct dpb_comm_args *args, void **comm)
{
    const struct averaging_rule rule = rule_of(options, args);
    DPB_TRY(check_rule(args, &rule));
    DPB_TRY(device_strategy_open(host, args, sizeof(struct averaging), comm));
    struct averaging *made = *comm;
    made->rule = rule;
    if (made->comm.in_place || args->n_workers + rule.centre <= DPB_SUM_SOURCES)
        return DPB_OK;
    device_strategy_close(made);
    *comm = NULL;
    return host->fail(DPB_UNSUPPORTED, "%u workers: a device adds up %d arrays, here of %d workers",
                      args->n_workers, DPB_SUM_SOURCES, DPB_SUM_SOURCES - 1);
}

/* Arrays as large as the weights in the inbox of this rank. */
static uint32_t count_areas(const struct averaging_rule *rule, uint32_t rank)
{
    const uint32_t of_all = rule->centre || rule->average_state;
    const uint32_t of_place = rule->learners > 0 && averaging_first(rule, rank) == rank;
    return of_all + of_place + (rank == 0 ? 1 + averaging_has_velocity(rule) : 0);
}

static uint64_t inbox_bytes(const struct averaging_rule *rule, uint32_t rank,
                            const struct dpb_layout *layout)
{
    return count_areas(rule, rank) *
           strategy_lines(layout->n_elements * dpb_dtype_size(layout->weight_type));
}

/* On a device: a slice from each member of the largest meeting, and its result. A worker without
 * others has nothing to fetch. */
static uint64_t staging_bytes(const struct averaging_rule *rule, uint32_t n_workers,
                              const struct dpb_layout *layout, uint64_t bucket_elements)
{
    const uint64_t longest = strategy_longest_bucket(layout, bucket_elements);
    const uint64_t slice = (longest + n_workers - 1) / n_workers;
    return n_workers == 1 ? 0
                          : averaging_slots(rule, n_workers) *
                                strategy_lines(slice * dpb_dtype_size(layout->weight_type));
}

static void averaging_memory(const void *options, const struct dpb_comm_args *args,
                             const struct dpb_layout *layout, uint64_t bucket_elements,
                             struct dpb_comm_memory *memory)
{
    const struct averaging_rule rule = rule_of(options, args);
    memory->beside_bytes = inbox_bytes(&rule, args->rank, layout);
    memory->device_bytes = staging_bytes(&rule, args->n_workers, layout, bucket_elements);
}

static dpb_status averaging_plan(void *comm, const struct dpb_layout *layout,
                                 struct dpb_comm_plan *want)
{
    struct averaging *self = comm;
    const struct dpb_comm_args *args = &self->comm.base.args;
    const uint64_t area = strategy_lines(layout->n_elements * dpb_dtype_size(layout->weight_type));
    DPB_TRY(strategy_plan_replica(comm, layout, DPB_MEMORY_SHARED, want));
    want->weights = DPB_MEMORY_SHARED;
    want->gradients = DPB_MEMORY_PRIVATE;
    want->contract = contract_of(&self->rule, args->n_workers);
    self->fence_at = strategy_lines(want->scratch_bytes);
    want->scratch_bytes = self->fence_at + sizeof(struct dpb_flag);
    self->place_at = self->rule.centre || self->rule.average_state ? area : 0;
    self->model_at = self->place_at + (self->rule.learners > 0 ? area : 0);
    self->velocity_at = self->model_at + area;
    self->staging_at = inbox_bytes(&self->rule, args->rank, layout);
    want->inbox_bytes = self->staging_at;
    if (!self->comm.in_place)
        want->inbox_bytes +=
            staging_bytes(&self->rule, args->n_workers, layout, want->bucket_elements);
    want->inbox = want->inbox_bytes > 0 ? DPB_MEMORY_SHARED : DPB_MEMORY_NONE;
    return DPB_OK;
}

static dpb_status averaging_bind(void *comm, const struct dpb_arenas *arenas)
{
    struct averaging *self = comm;
    struct device_strategy *device = &self->comm;
    DPB_TRY(device_lanes_open(device));
    DPB_TRY(device_flight_open(device, DEVICE_UPDATES, &device->out, SIGNAL_PUSHED));
    DPB_TRY(device_flight_open(device, MEETS, &device->here, SIGNAL_REDUCED));
    DPB_TRY(device_flight_open(device, TAKES, &device->back, N_SIGNALS));
    DPB_TRY(strategy_bind(&device->base, arenas, averaging_stages, AVERAGING_STAGES));
    device->base.pipeline.flights = averaging_flights;
    device->base.pipeline.flight_ops = &device_flight_ops;
    device_report_ways(device);
    return DPB_OK;
}

/* Blocks until all work in the flight's queue is done, or has failed. */
static dpb_status drain(struct averaging *self, uint32_t flight)
{
    device_keep(&self->comm, self->comm.ops->drain(self->comm.flights[flight].lane->queue));
    return self->comm.status;
}

/* The centre begins at rest where all replicas do. */
static dpb_status averaging_load(void *comm)
{
    struct averaging *self = comm;
    const struct strategy *base = comm;
    const struct work all = {self, MEETS, base->arenas.layout.n_elements};
    const uint32_t rank = base->args.rank;
    self->steps = self->rate = 0;
    if (self->rule.centre && rank == 0)
        averaging_copy(&all, averaging_model(self, 0), base->arenas.weights, rank);
    if (self->rule.centre && rank == 0 && averaging_has_velocity(&self->rule))
        averaging_clear(&all, averaging_velocity(self, 0));
    if (self->rule.learners > 0 && averaging_first(&self->rule, rank) == rank)
        averaging_copy(&all, averaging_place(self, rank, 0), base->arenas.weights, rank);
    return drain(self, MEETS);
}

/* ---- hooks: step and model ----------------------------------------------------------------- */

/* Both partners average a slice of both workers' weights: a third worker's would be a race. */
static dpb_status choose_partner(struct averaging *self, uint64_t round)
{
    struct averaging other = *self;
    const uint32_t rank = self->comm.base.args.rank, n = self->comm.base.args.n_workers;
    const uint32_t partner = self->rule.partner(self, round);
    other.comm.base.args.rank = partner;
    if (partner >= n || self->rule.partner(&other, round) != rank)
        return host->fail(
            DPB_FAILED,
            "struct averaging_rule: in round %llu the partner of rank %u is %u, whose "
            "partner is another one; partners name each other, or themselves",
            (unsigned long long)round, rank, partner);
    self->peers = (struct rank_set){partner, 1};
    return DPB_OK;
}

static dpb_status averaging_begin(void *comm, const struct dpb_step *step)
{
    struct averaging *self = comm;
    const double most = 0x1p53; /* an fp64 counts up to this */
    if (!(self->steps >= 0 && self->steps < most) || self->steps != (double)(uint64_t)self->steps)
        return host->fail(DPB_FAILED,
                          "the checkpoint's count of steps since the start is %g: it is damaged",
                          self->steps);
    const uint64_t period = self->rule.period, n = (uint64_t)++self->steps;
    self->meets = n % period == 0;
    self->restarts = self->rule.restart > 0 && self->rate > 0 &&
                     step->learning_rate <= self->rule.restart * self->rate;
    self->rate = step->learning_rate;
    self->peers = strategy_workers(&self->comm.base);
    if (self->meets && self->rule.partner)
        DPB_TRY(choose_partner(self, n / period - 1));
    return device_strategy_begin(comm, step);
}

/* Blocks until all workers have reached the same fence. */
static dpb_status pass_fence(struct averaging *self)
{
    const struct strategy *base = &self->comm.base;
    base->host->flag->set(fence_of(self, base->args.rank), ++self->fences);
    for (uint32_t rank = 0; rank < base->args.n_workers; rank++) {
        const struct dpb_wait what = {.step = base->step.step,
                                      .bucket = UINT64_MAX,
                                      .peer = rank,
                                      .purpose = "the peer's part of the mean model"};
        base->host->note("wait_peer", what.bucket, rank);
        DPB_TRY(base->host->flag->wait(fence_of(self, rank), self->fences, &what));
    }
    base->host->note("exchange", UINT64_MAX, UINT32_MAX); /* it waits for no peer any more */
    return DPB_OK;
}

/* This worker averages its slice of each bucket. */
static void take_means(struct averaging *self)
{
    const struct strategy *base = &self->comm.base;
    const uint32_t self_rank = base->args.rank, n = base->args.n_workers;
    const void *sources[STRATEGY_WORKERS];
    for (uint64_t bucket = 0; bucket < base->arenas.n_buckets; bucket++) {
        const struct dpb_range slice =
            slice_of(pipeline_bucket_length(&base->pipeline, bucket), self_rank, n);
        const uint64_t at = bucket * base->arenas.bucket_elements + slice.begin;
        const struct work work = {self, MEETS, slice.end - slice.begin};
        void *mean = averaging_room(&work, averaging_model(self, at), 0, n);
        for (uint32_t rank = 0; rank < n; rank++)
            sources[rank] = averaging_get(&work, strategy_weights(base, rank, at), rank, rank);
        averaging_sum(&work, mean, sources, n);
        averaging_axpby(&work, 1.0 / n, mean, 0.0, mean);
        averaging_put(&work, averaging_model(self, at), 0, mean);
    }
}

static dpb_status publish_mean(struct averaging *self)
{
    DPB_TRY(pass_fence(self));
    take_means(self);
    DPB_TRY(drain(self, MEETS));
    return pass_fence(self);
}

/* Whether all replicas hold the same weights, as they do where a mean of all was the last step. */
static bool are_equal(const struct averaging *self)
{
    return self->comm.base.args.n_workers == 1 || self->steps == 0 ||
           (takes_mean_of_all(&self->rule) && (uint64_t)self->steps % self->rule.period == 0);
}

static dpb_status averaging_publish(void *comm, struct dpb_view *view)
{
    struct averaging *self = comm;
    if (!self->rule.centre && are_equal(self))
        return strategy_publish(comm, view);
    if (!self->rule.centre)
        DPB_TRY(publish_mean(self));
    view->weights = averaging_model(self, 0);
    return DPB_OK;
}

/* z(t + 1) - momentum z(t) moves by the sum of all c alone, and is (1 - momentum) z + momentum
 * d. */
static dpb_status averaging_books(void *comm, struct dpb_books *books)
{
    const struct averaging *self = comm;
    const struct dpb_arenas *arenas = &self->comm.base.arenas;
    const dpb_dtype type = arenas->layout.weight_type;
    const double momentum = self->rule.centre_momentum;
    const uint32_t rank = self->comm.base.args.rank;
    books->entries[books->n++] = (struct dpb_book){arenas->weights, type, 1.0, false};
    if (self->rule.learners > 0 && averaging_first(&self->rule, rank) == rank)
        books->entries[books->n++] =
            (struct dpb_book){averaging_place(self, rank, 0), type, 1.0, false};
    if (!self->rule.centre || rank != 0)
        return DPB_OK;
    books->entries[books->n++] =
        (struct dpb_book){averaging_model(self, 0), type, 1.0 - momentum, false};
    if (momentum > 0)
        books->entries[books->n++] =
            (struct dpb_book){averaging_velocity(self, 0), type, momentum, false};
    return DPB_OK;
}

/* z is the published model, and `load` takes it from there. Each worker names the centre of its
 * place. */
static dpb_status averaging_state(void *comm, struct dpb_saved *saved)
{
    struct averaging *self = comm;
    const struct dpb_arenas *arenas = &self->comm.base.arenas;
    const dpb_dtype type = arenas->layout.weight_type;
    const uint64_t n = arenas->layout.n_elements;
    void *momentum = averaging_optimizer(self);
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
            "velocity", type, true, n,
            self->comm.base.args.rank == 0 ? averaging_velocity(self, 0) : NULL};
    if (self->rule.learners > 0) { /* other learners have other places */
        snprintf(self->place_name, sizeof self->place_name, "place_%u", self->rule.learners);
        saved->arrays[saved->n++] = (struct dpb_saved_array){
            self->place_name, type, false, n, averaging_place(self, self->comm.base.args.rank, 0)};
    }
    return DPB_OK;
}

const struct dpb_comm_ops averaging_ops = {.needs = averaging_needs,
                                           .memory = averaging_memory,
                                           .contract = averaging_contract,
                                           .open = averaging_open,
                                           .plan = averaging_plan,
                                           .bind = averaging_bind,
                                           .load = averaging_load,
                                           .begin = averaging_begin,
                                           .ready = strategy_ready,
                                           .progress = device_strategy_progress,
                                           .end = strategy_end,
                                           .publish = averaging_publish,
                                           .books = averaging_books,
                                           .state = averaging_state,
                                           .close = device_strategy_close};

const struct dpb_plugin *averaging_entry(const struct dpb_host *given,
                                         const struct dpb_plugin *plugin, averaging_rule_of rule)
{
    host = given;
    rule_of = rule;
    return plugin;
}
