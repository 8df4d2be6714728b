/* follow.c - the record of the followed elements: see follow.h. follow_judge.c compares it. */
#include "exchange/follow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "graph/graph.h"
#include "optim/optimizer.h"

bool dpb_follow_apart(const struct dpb_exchange *exchange)
{
    const dpb_consistency consistency = exchange->plan.contract.consistency;
    return consistency == DPB_PERIODIC || consistency == DPB_AVERAGING;
}

static bool applies(const struct dpb_exchange *exchange)
{
    return exchange->experiment->settings.run.mode == DPB_MODE_TRAIN &&
           (exchange->plan.contract.consistency == DPB_SYNCHRONOUS || exchange->late.on ||
            dpb_follow_apart(exchange));
}

/* Replicas that are apart take the same steps, by a linear rule and with all of their gradients.
 * Nothing is on its way between two steps. A periodic strategy settles by its meetings. */
static bool sums_show(const struct dpb_exchange *exchange)
{
    const struct dpb_contract *contract = &exchange->plan.contract;
    return exchange->experiment->settings.optimizer.kind == DPB_SGD && contract->lead == 0 &&
           (contract->settle_steps == 0 || contract->consistency == DPB_PERIODIC) &&
           !exchange->ops->settle && !exchange->ops->applied;
}

/* Why no step is followed; NULL: steps are. A rule's state must begin with zeros: that of a
 * continued training is on its owners alone. */
static const char *refusal(const struct dpb_exchange *exchange)
{
    const struct dpb_experiment *experiment = exchange->experiment;
    const struct dpb_settings *settings = &experiment->settings;
    if (settings->run.mode != DPB_MODE_TRAIN)
        return "nothing is trained";
    if (exchange->plan.contract.consistency == DPB_ALONE)
        return "workers do not exchange";
    if (!applies(exchange))
        return "strategies of this consistency are not followed";
    if (experiment->start.step > 0 && dpb_optimizer_states(&settings->optimizer) > 0)
        return "the training continues, and its optimizer has a state";
    if (settings->run.survive)
        return "run.survive is on";
    if (exchange->memory.on_device)
        return "arenas are in a device's memory";
    if (dpb_optimizer_needs_norms(&settings->optimizer))
        return "the optimizer takes norms";
    if (dpb_follow_apart(exchange) && !sums_show(exchange))
        return settings->optimizer.kind == DPB_SGD ? "gradients are on their way between steps"
                                                   : "replicas that differ are followed with sgd";
    return NULL;
}

/* `at`, or where that lies in a gap, the nearest element of a tensor in [begin, end); in the gap if
 * there is none. */
static uint64_t beside_gap(const struct dpb_graph *graph, uint64_t begin, uint64_t end, uint64_t at)
{
    const struct dpb_tensor *tensor = &graph->tensors[dpb_graph_tensor_at(graph, at)];
    const uint64_t last = tensor->offset + tensor->n_elements - 1;
    if (at <= last)
        return at;
    if (last >= begin)
        return last;
    return tensor + 1 < graph->tensors + graph->n_tensors && tensor[1].offset < end
               ? tensor[1].offset
               : at;
}

/* By turns the first element of a bucket, its last one, and one between. All buckets have one if
 * they are no more than the elements. */
static void draw_elements(struct dpb_exchange *exchange, struct dpb_follow *follow)
{
    const uint64_t length = exchange->arenas.bucket_elements;
    for (uint32_t i = 0; i < follow->n; i++) {
        const uint64_t begin = i * exchange->arenas.n_buckets / follow->n * length;
        const uint64_t rest = exchange->layout.n_elements - begin;
        const uint64_t n = rest < length ? rest : length;
        const uint64_t secret = dpb_step_seal(UINT64_MAX - i, true); /* no step has this number */
        const uint64_t places[] = {0, n - 1, secret % n};
        follow->elements[i] = beside_gap(exchange->graph, begin, begin + n, begin + places[i % 3]);
    }
}

static uint64_t row_bytes(const struct dpb_follow *follow, dpb_dtype type)
{
    return follow->n * dpb_dtype_size(type);
}

/* Written once, so that no step waits for memory. */
static void *allocate(uint64_t bytes)
{
    void *memory = malloc(bytes);
    return memory ? memset(memory, 0xff, bytes) : NULL;
}

/* Rank 0 gets the gradients of all: more workers follow fewer elements. */
static uint32_t count_elements(const struct dpb_exchange *exchange)
{
    enum { ALL = 64 * DPB_FOLLOWED, LEAST = 8 };
    const uint32_t share = ALL / exchange->experiment->n_workers;
    const uint32_t n = share < LEAST ? LEAST : share;
    return n < DPB_FOLLOWED ? n : DPB_FOLLOWED;
}

/* Replicas whose proof settles them are all that there is. A centre is in the books, too. */
static dpb_status set_coefficient(struct dpb_exchange *exchange, struct dpb_follow *follow)
{
    struct dpb_books books = {.n = 0};
    const struct dpb_book *book = books.entries;
    follow->coefficient = 1.0 / exchange->experiment->n_workers;
    if (!dpb_follow_apart(exchange) || exchange->plan.contract.proof != DPB_PROOF_BOOKS)
        return DPB_OK;
    DPB_TRY(exchange->ops->books(exchange->comm, &books));
    const bool alone = books.n == 1 && book->array == exchange->arenas.weights &&
                       book->type == exchange->layout.weight_type && !book->of_gradients;
    follow->coefficient = alone ? book->coefficient : 0.0;
    return DPB_OK;
}

dpb_status dpb_follow_open(struct dpb_exchange *exchange, struct dpb_journal *journal)
{
    const uint64_t n_rows = DPB_FOLLOWED_STEPS + UINT64_C(1);
    journal->verdict_steps = applies(exchange) ? DPB_VERDICT_SKIPPED : DPB_VERDICT_NOT_APPLICABLE;
    const char *refused = refusal(exchange);
    if (refused) {
        snprintf(journal->steps_reason, sizeof journal->steps_reason, "%s", refused);
        return DPB_OK;
    }
    struct dpb_follow *follow = exchange->follow = calloc(1, sizeof *follow);
    if (!follow)
        return dpb_fail(DPB_NO_MEMORY, "no memory to follow elements");
    DPB_TRY(set_coefficient(exchange, follow));
    follow->n = follow->next = count_elements(exchange);
    draw_elements(exchange, follow);
    follow->steps = allocate(n_rows * sizeof *follow->steps);
    follow->weights = allocate(n_rows * row_bytes(follow, exchange->layout.weight_type));
    follow->gradients =
        allocate(DPB_FOLLOWED_STEPS * row_bytes(follow, exchange->layout.gradient_type));
    return follow->steps && follow->weights && follow->gradients
               ? DPB_OK
               : dpb_fail(DPB_NO_MEMORY, "no memory to follow elements");
}

void dpb_follow_close(struct dpb_exchange *exchange)
{
    if (!exchange->follow)
        return;
    free(exchange->follow->steps);
    free(exchange->follow->weights);
    free(exchange->follow->gradients);
    free(exchange->follow);
    exchange->follow = NULL;
}

static void note_weights(struct dpb_exchange *exchange)
{
    struct dpb_follow *follow = exchange->follow;
    const size_t size = dpb_dtype_size(exchange->layout.weight_type);
    char *row = follow->weights + follow->n_begun * follow->n * size;
    follow->steps[follow->n_begun] = (struct dpb_followed_step){
        dpb_world_step(), exchange->step.learning_rate, exchange->step.scale};
    for (uint32_t i = 0; i < follow->n; i++)
        memcpy(row + i * size, (const char *)exchange->arenas.weights + follow->elements[i] * size,
               size);
}

void dpb_follow_begin(struct dpb_exchange *exchange)
{
    struct dpb_follow *follow = exchange->follow;
    if (!follow || exchange->plain || follow->n_begun > DPB_FOLLOWED_STEPS)
        return;
    note_weights(exchange);
    if (follow->n_begun < DPB_FOLLOWED_STEPS)
        follow->next = 0;
    follow->n_begun++;
}

void dpb_follow_bucket(struct dpb_exchange *exchange, uint64_t bucket)
{
    struct dpb_follow *follow = exchange->follow;
    const uint64_t end = (bucket + 1) * exchange->arenas.bucket_elements;
    const size_t size = dpb_dtype_size(exchange->layout.gradient_type);
    if (!follow || follow->next == follow->n)
        return;
    char *row = follow->gradients + (follow->n_begun - 1) * follow->n * size;
    for (; follow->next < follow->n && follow->elements[follow->next] < end; follow->next++)
        memcpy(row + follow->next * size,
               (const char *)exchange->arenas.gradients + follow->elements[follow->next] * size,
               size);
}

void dpb_follow_end(struct dpb_exchange *exchange)
{
    if (exchange->follow && exchange->follow->n_begun <= DPB_FOLLOWED_STEPS)
        note_weights(exchange);
}
