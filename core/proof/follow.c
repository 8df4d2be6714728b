/* follow.c - the record of the followed elements: see follow.h. follow_judge.c compares it. */
#include "proof/follow.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/vec.h"
#include "dpbench/random.h"
#include "exchange/resident.h"
#include "graph/graph.h"
#include "optim/optimizer.h"
#include "world/store.h"

static const uint64_t none = UINT64_MAX;

/* ---- which strategies ------------------------------------------------------------------------ */

bool dpb_follow_apart(const struct dpb_exchange *exchange)
{
    const dpb_consistency consistency = exchange->plan.contract.consistency;
    return consistency == DPB_PERIODIC || consistency == DPB_AVERAGING;
}

bool dpb_follow_notes(const struct dpb_exchange *exchange)
{
    const struct dpb_optimizer_settings *settings = &exchange->experiment->settings.optimizer;
    return dpb_optimizer_needs_norms(settings) || dpb_optimizer_states(settings) > 0;
}

static bool applies(const struct dpb_exchange *exchange)
{
    const struct dpb_contract *contract = &exchange->plan.contract;
    return exchange->experiment->settings.run.mode == DPB_MODE_TRAIN &&
           (contract->consistency == DPB_SYNCHRONOUS || exchange->late.on ||
            exchange->experiment->settings.comm.late > 0 || dpb_follow_apart(exchange) ||
            (contract->consistency == DPB_LOSSY && contract->replicas_equal));
}

/* Gradients may be on their way between two steps. A periodic strategy settles by its meetings;
 * comm.late has ended the exchange before. Replicas of workers that end together change by their
 * own steps alone, and by meetings within them. */
static bool rests(const struct dpb_exchange *exchange)
{
    const struct dpb_contract *contract = &exchange->plan.contract;
    const bool meets = dpb_follow_apart(exchange) && contract->lead < UINT32_MAX;
    return (contract->lead == 0 || meets) && !exchange->ops->settle && !exchange->ops->applied &&
           (contract->settle_steps == 0 || contract->consistency == DPB_PERIODIC ||
            exchange->experiment->settings.comm.late > 0);
}

/* Why no step is followed; NULL: steps are. A server may keep a record that nobody asks for. */
static const char *refusal(const struct dpb_exchange *exchange)
{
    const struct dpb_experiment *experiment = exchange->experiment;
    if (experiment->settings.run.mode != DPB_MODE_TRAIN)
        return "nothing is trained";
    if (exchange->plan.contract.consistency == DPB_ALONE)
        return "workers do not exchange";
    if (!applies(exchange))
        return "strategies of this consistency are not followed";
    if (experiment->settings.run.survive)
        return "run.survive is on";
    if (exchange->memory.on_device)
        return "arenas are in a device's memory";
    return rests(exchange) ? NULL : "gradients are on their way between steps";
}

/* ---- elements -------------------------------------------------------------------------------- */

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

static int compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* A quarter are first and last elements of buckets, the rest any: so no bucket is left out where
 * there are few, and a mistake in a part of the elements meets as large a part of these. */
static void draw_elements(const struct dpb_follow *follow, uint64_t number, uint64_t *elements)
{
    const struct dpb_exchange *exchange = follow->exchange;
    const struct dpb_graph *graph = exchange->graph;
    const uint64_t length = exchange->arenas.bucket_elements, all = exchange->layout.n_elements;
    const uint64_t secret = dpb_step_seal(none - number, true); /* no exchange has this number */
    const uint64_t n_buckets = exchange->arenas.n_buckets;
    const uint32_t n_edges = follow->n / 4, n_pairs = n_edges / 2;
    for (uint32_t i = 0; i < follow->n; i++) {
        const struct dpb_random4 word = dpb_random(secret, DPB_STREAM_SEAL, i, 0, 0, 0);
        const uint64_t drawn = (uint64_t)word.v[0] << 32 | word.v[1];
        const uint64_t low = i / 2 * n_buckets / n_pairs, high = (i / 2 + 1) * n_buckets / n_pairs;
        const uint64_t bucket = high > low ? low + word.v[2] % (high - low) : low;
        const uint64_t begin = i < n_edges ? bucket * length : 0;
        const uint64_t end = i < n_edges && all - begin > length ? begin + length : all;
        const uint64_t edge = i % 2 == 0 ? begin : end - 1;
        elements[i] = beside_gap(graph, begin, end, i < n_edges ? edge : drawn % all);
    }
    qsort(elements, follow->n, sizeof *elements, compare);
}

/* Rank 0 gets the records of all: more workers follow fewer elements. */
static uint32_t count_elements(const struct dpb_exchange *exchange)
{
    const uint32_t n = 64 * DPB_FOLLOWED / exchange->experiment->n_workers;
    return n > DPB_FOLLOWED ? DPB_FOLLOWED : n < DPB_FOLLOWED_LEAST ? DPB_FOLLOWED_LEAST : n;
}

/* ---- segments -------------------------------------------------------------------------------- */

static struct dpb_segment *segment_at(const struct dpb_follow *follow, uint64_t place)
{
    return (struct dpb_segment *)(void *)(follow->record + place * follow->segment_bytes);
}

static bool is_kept(const struct dpb_follow *follow, uint64_t number)
{
    return (number - follow->first) % follow->stride == 0;
}

static struct dpb_segment *find(const struct dpb_follow *follow, uint64_t number)
{
    for (uint64_t place = 0; place < follow->capacity; place++)
        if (segment_at(follow, place)->number == number)
            return segment_at(follow, place);
    return NULL;
}

/* Takes a place that is free, or of a segment that is given up. Fewer than `capacity` are kept. */
static struct dpb_segment *begin_segment(struct dpb_follow *follow, uint64_t number)
{
    uint64_t place = 0;
    while (segment_at(follow, place)->number != none &&
           is_kept(follow, segment_at(follow, place)->number))
        place++;
    struct dpb_segment *segment = segment_at(follow, place);
    *segment = (struct dpb_segment){.number = number};
    draw_elements(follow, number, dpb_segment_elements(follow, segment));
    for (uint32_t row = 0; row < follow->note_rows; row++)
        memset(dpb_segment_notes(follow, segment, row), 0,
               follow->n * sizeof(struct dpb_followed_note));
    return segment;
}

/* The segment of this exchange, made where it is the latest; NULL: it is left out. Locked. */
static struct dpb_segment *segment_of(struct dpb_follow *follow, uint64_t exchange)
{
    const uint64_t number = exchange / DPB_SEGMENT_STEPS;
    if (follow->first == none)
        follow->first = number;
    else if (number <= follow->latest)
        return find(follow, number);
    follow->latest = number;
    while ((number - follow->first) / follow->stride >= follow->capacity)
        follow->stride *= 2;
    return is_kept(follow, number) ? begin_segment(follow, number) : NULL;
}

static struct dpb_segment *get_segment(struct dpb_follow *follow, uint64_t exchange)
{
    pthread_mutex_lock(&follow->lock);
    struct dpb_segment *segment = segment_of(follow, exchange);
    pthread_mutex_unlock(&follow->lock);
    return segment;
}

struct dpb_segment *dpb_follow_next(const struct dpb_follow *follow, uint64_t number)
{
    struct dpb_segment *next = NULL;
    for (uint64_t place = 0; place < follow->capacity; place++) {
        struct dpb_segment *segment = segment_at(follow, place);
        if (segment->number != none && segment->number >= number &&
            is_kept(follow, segment->number) && (!next || segment->number < next->number))
            next = segment;
    }
    return next;
}

/* ---- the optimizer's notes ------------------------------------------------------------------- */

static double number_at(dpb_dtype type, const void *array, uint64_t i)
{
    if (!array)
        return 0.0;
    return type == DPB_FP64 ? ((const double *)array)[i] : (double)((const float *)array)[i];
}

static void note_update(struct dpb_follow *follow, struct dpb_segment *segment,
                        const struct dpb_step *step, const struct dpb_update *update,
                        uint64_t number)
{
    const uint64_t *elements = dpb_segment_elements(follow, segment);
    const uint32_t row = step->step % DPB_SEGMENT_STEPS;
    struct dpb_followed_note *notes = dpb_segment_notes(follow, segment, row);
    uint32_t low = 0, high = follow->n;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (elements[middle] < update->first)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < follow->n && elements[low] < update->first + update->n; low++) {
        const uint64_t at = elements[low] - update->first;
        const bool has_state = update->kind != DPB_UPDATE_PLAIN;
        if (notes[low].exchange != 0)
            continue;
        notes[low] = (struct dpb_followed_note){
            .exchange = (uint32_t)step->step + 1,
            .update = (uint32_t)number,
            .first = number_at(update->weight_type, has_state ? update->state : NULL, at),
            .second = number_at(update->weight_type, update->second, at)};
        if (follow->has_factors)
            dpb_segment_factors(follow, segment, row)[low] =
                (struct dpb_followed_factors){update->rate, update->scale, update->decay};
    }
}

static void see_update(void *owner, const struct dpb_step *step, const struct dpb_update *update,
                       uint64_t number)
{
    struct dpb_follow *follow = owner;
    pthread_mutex_lock(&follow->lock);
    struct dpb_segment *segment = segment_of(follow, step->step);
    if (segment)
        note_update(follow, segment, step, update, number);
    pthread_mutex_unlock(&follow->lock);
}

/* ---- a training ------------------------------------------------------------------------------ */

static struct dpb_followed_books books_of(const struct dpb_follow *follow, uint64_t element)
{
    struct dpb_followed_books books = {0};
    for (uint32_t i = 0; i < follow->books.n; i++) {
        const struct dpb_book *book = &follow->books.entries[i];
        const size_t size = dpb_dtype_size(book->type);
        double value;
        dpb_vec.cast(DPB_FP64, &value, book->type, (const char *)book->array + element * size, 1);
        books.sum += book->coefficient * value;
        books.size += fabs(book->coefficient * value);
    }
    return books;
}

static void gather(const struct dpb_follow *follow, const uint64_t *elements, void *weights,
                   struct dpb_followed_books *books)
{
    const struct dpb_exchange *exchange = follow->exchange;
    const size_t size = dpb_dtype_size(exchange->layout.weight_type);
    for (uint32_t i = 0; i < follow->n; i++)
        if (dpb_resident_has(exchange, elements[i]))
            memcpy((char *)weights + i * size,
                   (const char *)exchange->arenas.weights + elements[i] * size, size);
        else
            memset((char *)weights + i * size, 0xff, size);
    for (uint32_t i = 0; books && i < follow->n; i++)
        books[i] = books_of(follow, elements[i]);
}

static void note_row(struct dpb_follow *follow, struct dpb_segment *segment, uint32_t row)
{
    gather(follow, dpb_segment_elements(follow, segment), dpb_segment_weights(follow, segment, row),
           follow->has_books ? dpb_segment_books(follow, segment, row) : NULL);
    segment->weights |= 1U << row;
}

/* Whether replicas have met is looked for in every exchange, in the same elements. */
static void note_end(struct dpb_follow *follow)
{
    const struct dpb_layout *layout = &follow->exchange->layout;
    double weights[DPB_FOLLOWED]; /* room for any type */
    struct dpb_followed_books books[DPB_FOLLOWED];
    if (!follow->ends || follow->terms.n_ends == DPB_FOLLOWED_ENDS)
        return;
    gather(follow, follow->elements, weights, books);
    follow->ends[follow->terms.n_ends++] = (struct dpb_followed_end){
        .weights = dpb_vec_checksum(layout->weight_type, weights, follow->n),
        .books = dpb_vec_checksum(DPB_FP64, books, 2 * (uint64_t)follow->n),
        .rate = follow->exchange->step.learning_rate};
}

/* Weights stay as they are from here until the next exchange. */
static void close_exchange(struct dpb_follow *follow)
{
    if (follow->open == none)
        return;
    const uint32_t row = follow->open % DPB_SEGMENT_STEPS;
    struct dpb_segment *segment = get_segment(follow, follow->open);
    if (segment && segment->weights >> row & 1)
        note_row(follow, segment, row + 1);
    follow->open = none;
}

static void begin_exchange(void *owner)
{
    struct dpb_follow *follow = owner;
    const struct dpb_exchange *exchange = follow->exchange;
    const uint64_t number = exchange->step.step;
    const uint32_t row = number % DPB_SEGMENT_STEPS;
    close_exchange(follow);
    if (follow->first_exchange == none) {
        follow->first_exchange = number;
        draw_elements(follow, number / DPB_SEGMENT_STEPS, follow->elements);
    }
    note_end(follow);
    struct dpb_segment *segment = get_segment(follow, number);
    follow->open = number;
    if (!segment)
        return;
    if (!(segment->weights >> row & 1))
        note_row(follow, segment, row);
    segment->steps[row] = (struct dpb_followed_step){dpb_world_step(), exchange->step.learning_rate,
                                                     exchange->step.scale};
}

/* Those that were away when the exchange began, as the device reads them. */
static void note_weights(void *owner, uint64_t begin, uint64_t end)
{
    struct dpb_follow *follow = owner;
    const struct dpb_exchange *exchange = follow->exchange;
    const size_t size = dpb_dtype_size(exchange->layout.weight_type);
    struct dpb_segment *segment = get_segment(follow, exchange->step.step);
    if (!segment)
        return;
    const uint64_t *elements = dpb_segment_elements(follow, segment);
    char *weights = dpb_segment_weights(follow, segment, exchange->step.step % DPB_SEGMENT_STEPS);
    for (uint32_t i = 0; i < follow->n; i++)
        if (elements[i] >= begin && elements[i] < end)
            memcpy(weights + i * size, (const char *)exchange->arenas.weights + elements[i] * size,
                   size);
}

/* A step that fp16 skips has no exchange: the next one's gradients take the place of its own. */
static void note_gradients(void *owner, uint64_t begin, uint64_t end)
{
    struct dpb_follow *follow = owner;
    const struct dpb_exchange *exchange = follow->exchange;
    const size_t size = dpb_dtype_size(exchange->layout.gradient_type);
    const uint64_t number = exchange->staging.held_back ? exchange->n_begun : exchange->step.step;
    const uint32_t row = number % DPB_SEGMENT_STEPS;
    struct dpb_segment *segment = get_segment(follow, number);
    if (!segment)
        return;
    const uint64_t *elements = dpb_segment_elements(follow, segment);
    char *gradients = dpb_segment_gradients(follow, segment, row);
    follow->next = begin == 0 ? 0 : follow->next;
    for (; follow->next < follow->n && elements[follow->next] < end; follow->next++) {
        char *noted = gradients + follow->next * size;
        const char *given = (const char *)exchange->gradients + elements[follow->next] * size;
        if (exchange->step.adds)
            dpb_vec.axpby(exchange->layout.gradient_type, 1.0, given, 1.0, noted, 1);
        else
            memcpy(noted, given, size);
    }
    if (end == exchange->layout.n_elements)
        segment->gradients |= 1U << row;
}

/* ---- making and ending ----------------------------------------------------------------------- */

static size_t aligned(size_t bytes)
{
    return (bytes + DPB_CACHE_LINE - 1) / DPB_CACHE_LINE * DPB_CACHE_LINE;
}

/* The books beside the weights: centres are weights, residuals are gradients. */
static dpb_status read_books(struct dpb_exchange *exchange, struct dpb_follow *follow)
{
    struct dpb_books books = {.n = 0};
    follow->terms.coefficient = 1.0 / exchange->experiment->n_workers;
    if (!follow->has_books)
        return DPB_OK;
    DPB_TRY(exchange->ops->books(exchange->comm, &books));
    follow->terms.coefficient = 0.0;
    for (uint32_t i = 0; i < books.n && i < DPB_BOOKS; i++) {
        const struct dpb_book *book = &books.entries[i];
        if (book->array == exchange->arenas.weights && !book->of_gradients) {
            follow->terms.coefficient += book->coefficient;
            continue;
        }
        follow->terms.has_other_units |= book->of_gradients == dpb_follow_apart(exchange);
        if (book->array)
            follow->books.entries[follow->books.n++] = *book;
    }
    return DPB_OK;
}

static void lay_out(const struct dpb_exchange *exchange, struct dpb_follow *follow)
{
    const size_t n = follow->n, rows = DPB_SEGMENT_STEPS + 1;
    const size_t weight = dpb_dtype_size(exchange->layout.weight_type);
    const size_t gradient = dpb_dtype_size(exchange->layout.gradient_type);
    follow->elements_at = aligned(sizeof(struct dpb_segment));
    follow->weights_at = follow->elements_at + aligned(n * sizeof(uint64_t));
    follow->gradients_at = follow->weights_at + aligned(rows * n * weight);
    follow->books_at = follow->gradients_at + aligned(DPB_SEGMENT_STEPS * n * gradient);
    follow->notes_at =
        follow->books_at +
        (follow->has_books ? aligned(rows * n * sizeof(struct dpb_followed_books)) : 0);
    follow->factors_at =
        follow->notes_at + aligned(follow->note_rows * n * sizeof(struct dpb_followed_note));
    follow->segment_bytes =
        follow->factors_at +
        (follow->has_factors ? aligned(follow->note_rows * n * sizeof(struct dpb_followed_factors))
                             : 0);
    follow->capacity = DPB_FOLLOWED_BYTES / follow->segment_bytes;
}

void dpb_follow_ask_key(uint32_t rank, char key[DPB_FOLLOW_KEY])
{
    snprintf(key, DPB_FOLLOW_KEY, "followed/ask/%u", rank);
}

void dpb_follow_answer_key(uint32_t rank, char key[DPB_FOLLOW_KEY])
{
    snprintf(key, DPB_FOLLOW_KEY, "followed/%u", rank);
}

static dpb_status give_segment(void *owner, const void *question, size_t bytes)
{
    struct dpb_follow *follow = owner;
    char key[DPB_FOLLOW_KEY];
    uint64_t number = none;
    if (bytes == sizeof number)
        memcpy(&number, question, bytes);
    pthread_mutex_lock(&follow->lock); /* all updates of the exchange have come before */
    struct dpb_segment *found = find(follow, number), *blank = NULL;
    pthread_mutex_unlock(&follow->lock);
    if (!found && !(found = blank = calloc(1, follow->segment_bytes)))
        return dpb_fail(DPB_NO_MEMORY, "no memory to give what was followed");
    if (blank)
        blank->number = none;
    dpb_follow_answer_key(dpb_world.rank, key);
    dpb_status status = dpb_store_give_all(key, found, follow->segment_bytes);
    free(blank);
    return status;
}

/* Written once, so that no step waits for memory. */
static void *allocate(size_t bytes)
{
    void *memory = malloc(bytes);
    return memory ? memset(memory, 0xff, bytes) : NULL;
}

static dpb_status start(struct dpb_exchange *exchange, struct dpb_follow *follow)
{
    const bool meets = dpb_follow_apart(exchange) && dpb_world.role == DPB_WORKER;
    follow->record = allocate(follow->capacity * follow->segment_bytes);
    follow->ends = meets ? allocate(DPB_FOLLOWED_ENDS * sizeof *follow->ends) : NULL;
    if (!follow->record || (meets && !follow->ends))
        return dpb_fail(DPB_NO_MEMORY, "no memory to follow elements");
    dpb_optimizer_show(exchange->optimizer,
                       (struct dpb_optimizer_witness){.see = see_update, .owner = follow});
    if (dpb_world.role == DPB_WORKER)
        return read_books(exchange, follow);
    follow->answerer = (struct dpb_answerer){.answer = give_segment, .owner = follow};
    dpb_follow_ask_key(dpb_world.rank, follow->answerer.key);
    return dpb_answerer_start(&follow->answerer, "the steps check");
}

dpb_status dpb_follow_open(struct dpb_exchange *exchange, struct dpb_journal *journal)
{
    const char *refused = refusal(exchange);
    journal->verdict_steps = applies(exchange) ? DPB_VERDICT_SKIPPED : DPB_VERDICT_NOT_APPLICABLE;
    if (refused) {
        snprintf(journal->steps_reason, sizeof journal->steps_reason, "%s", refused);
        return DPB_OK;
    }
    struct dpb_follow *follow = calloc(1, sizeof *follow);
    DPB_TRY(dpb_allocated(follow));
    exchange->onlooker =
        (struct dpb_onlooker){follow, begin_exchange, note_gradients, note_weights};
    follow->exchange = exchange;
    pthread_mutex_init(&follow->lock, NULL);
    follow->has_factors = dpb_optimizer_needs_norms(&exchange->experiment->settings.optimizer);
    follow->has_books = exchange->plan.contract.proof == DPB_PROOF_BOOKS;
    follow->note_rows = dpb_follow_apart(exchange) || follow->has_factors ? DPB_SEGMENT_STEPS : 1;
    follow->n = count_elements(exchange);
    follow->stride = 1;
    follow->first = follow->first_exchange = follow->open = none;
    lay_out(exchange, follow);
    return start(exchange, follow);
}

void dpb_follow_close(struct dpb_exchange *exchange)
{
    struct dpb_follow *follow = dpb_follow_of(exchange);
    if (!follow)
        return;
    dpb_optimizer_show(exchange->optimizer, (struct dpb_optimizer_witness){.see = NULL});
    dpb_answerer_stop(&follow->answerer);
    pthread_mutex_destroy(&follow->lock);
    free(follow->record);
    free(follow->ends);
    free(follow);
    exchange->onlooker = (struct dpb_onlooker){.owner = NULL};
}

void dpb_follow_end(struct dpb_exchange *exchange)
{
    struct dpb_follow *follow = dpb_follow_of(exchange);
    if (!follow)
        return;
    close_exchange(follow);
    note_end(follow);
}
