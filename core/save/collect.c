/* collect.c - see collect.h. */
#include "save/collect.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "optim/optimizer.h"
#include "world/store.h"

enum { SHARED_STATE, SHARED_OWNED, SHARED, KEY_BYTES = 48 };

static const char request[] = "give";

/* ---- who owns how much --------------------------------------------------------------------- */

static struct dpb_holding holding_of(const struct dpb_range *owned, uint64_t n)
{
    struct dpb_holding holding = {.n_ranges = n};
    for (uint64_t i = 0; i < n; i++)
        holding.n_elements += owned[i].end - owned[i].begin;
    return holding;
}

static bool is_mapped_by_0(uint32_t rank)
{
    return dpb_world.machines[rank] == dpb_world.machines[0];
}

/* Rank 0: whether it has to ask ranks of other machines. Replicas have all of the state each, so it
 * need not. */
static dpb_status choose_sources(struct dpb_collection *c, bool *asks)
{
    uint64_t here = 0, elsewhere = 0, all = c->layout->n_elements;
    c->holdings = calloc(dpb_world.n_ranks, sizeof *c->holdings);
    DPB_TRY(dpb_allocated(c->holdings));
    for (uint32_t rank = 0; rank < dpb_world.n_ranks; rank++) {
        DPB_TRY(dpb_store_get_of(rank, "collect/owned", &c->holdings[rank],
                                 sizeof c->holdings[rank], NULL));
        *(is_mapped_by_0(rank) ? &here : &elsewhere) += c->holdings[rank].n_elements;
    }
    *asks = here < all;
    if (!*asks || here + elsewhere == all)
        return DPB_OK;
    return dpb_fail(DPB_UNSUPPORTED,
                    "comm '%s': its ranks own %" PRIu64 " elements of optimizer state out of "
                    "%" PRIu64 "; no checkpoint can be made of that",
                    c->comm, here + elsewhere, all);
}

/* Each rank gives rank 0 its holding, and learns whether rank 0 asks for states. */
static dpb_status agree_on_sources(struct dpb_collection *c)
{
    const struct dpb_holding own = holding_of(c->plan->owned, c->plan->n_owned);
    bool asks = false;
    DPB_TRY(dpb_store_put_own("collect/owned", &own, sizeof own));
    if (dpb_world.rank == 0)
        DPB_TRY(choose_sources(c, &asks));
    DPB_TRY(dpb_store_from_0("collect/asks", &asks, sizeof asks));
    c->is_asked = asks && own.n_elements > 0 && !is_mapped_by_0(dpb_world.rank);
    return DPB_OK;
}

/* ---- answering ----------------------------------------------------------------------------- */

/* A copy of each piece: once it is given, this rank's next step may begin. */
static dpb_status give_state(const struct dpb_collection *c, const char *key)
{
    const struct dpb_mapping state = dpb_optimizer_mapping(c->optimizer);
    dpb_status status = DPB_OK;
    char *piece = calloc(1, DPB_STORE_VALUE_BYTES);
    DPB_TRY(dpb_allocated(piece));
    for (uint64_t at = 0, n; at < state.bytes && status == DPB_OK; at += n) {
        n = state.bytes - at < DPB_STORE_VALUE_BYTES ? state.bytes - at : DPB_STORE_VALUE_BYTES;
        memcpy(piece, (const char *)state.memory + at, n);
        dpb_optimizer_was_read(c->optimizer);
        status = dpb_store_give(key, piece, n, 0);
    }
    free(piece);
    return status;
}

static dpb_status give(void *collection, const void *question, size_t bytes)
{
    const struct dpb_collection *c = collection;
    char key[KEY_BYTES];
    (void)question, (void)bytes; /* there is one */
    snprintf(key, sizeof key, "collect/state/%u", dpb_world.rank);
    DPB_TRY(dpb_store_give_all(key, c->plan->owned, c->plan->n_owned * sizeof *c->plan->owned));
    return give_state(c, key);
}

dpb_status dpb_collect_answer(struct dpb_collection *c)
{
    char asked[DPB_QUESTION_BYTES];
    size_t bytes = sizeof asked;
    if (!c->is_asked)
        return DPB_OK;
    DPB_TRY(dpb_store_take(c->answerer.key, asked, &bytes, DPB_FOREVER));
    return give(c, asked, bytes);
}

/* ---- collecting ---------------------------------------------------------------------------- */

/* One rank's state, which comes from its begin to its end, array after array, on its way into the
 * arenas. */
struct placing {
    char *arena; /* of the array under way */
    const struct dpb_range *owned;
    uint64_t n_ranges, arena_bytes;
    size_t element;      /* bytes */
    uint64_t range, put; /* bytes of that one */
};

static void place(struct placing *p, const char *from, uint64_t bytes)
{
    while (bytes > 0) {
        const struct dpb_range *range = &p->owned[p->range];
        uint64_t rest = (range->end - range->begin) * p->element - p->put;
        uint64_t n = bytes < rest ? bytes : rest;
        memcpy(p->arena + range->begin * p->element + p->put, from, n);
        from += n;
        bytes -= n;
        p->put += n;
        if (n == rest) {
            p->range++;
            p->put = 0;
        }
        if (p->range == p->n_ranges) {
            p->range = 0;
            p->arena += p->arena_bytes;
        }
    }
}

/* The ranges lie within the arena and are as many elements as the rank's holding. */
static dpb_status check_ranges(const struct dpb_collection *c, uint32_t rank,
                               const struct dpb_range *owned)
{
    const struct dpb_holding *said = &c->holdings[rank];
    uint64_t behind = 0;
    bool rising = true;
    for (uint64_t i = 0; i < said->n_ranges; i++) {
        rising = rising && owned[i].begin >= behind && owned[i].end >= owned[i].begin;
        behind = owned[i].end;
    }
    if (rising && behind <= c->layout->n_elements &&
        holding_of(owned, said->n_ranges).n_elements == said->n_elements)
        return DPB_OK;
    return dpb_fail(DPB_FAILED, "rank %u owns other parts of the optimizer's state than it said",
                    rank);
}

static dpb_status take_state(const struct dpb_collection *c, uint32_t rank, struct dpb_range *owned,
                             char *piece, struct placing *placing)
{
    static const char what[] = "its optimizer's state";
    const struct dpb_holding *said = &c->holdings[rank];
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "collect/ask/%u", rank);
    dpb_world_note("checkpoint", UINT64_MAX, rank);
    DPB_TRY(dpb_store_give(key, request, sizeof request, 0));
    snprintf(key, sizeof key, "collect/state/%u", rank);
    DPB_TRY(dpb_store_take_all(rank, key, owned, said->n_ranges * sizeof *owned, what));
    DPB_TRY(check_ranges(c, rank, owned));
    placing->owned = owned;
    uint64_t rest = c->n_arrays * said->n_elements * placing->element;
    while (rest > 0) {
        uint64_t n = rest < DPB_STORE_VALUE_BYTES ? rest : DPB_STORE_VALUE_BYTES;
        DPB_TRY(dpb_store_take_all(rank, key, piece, n, what));
        place(placing, piece, n);
        rest -= n;
    }
    return DPB_OK;
}

static dpb_status collect_elsewhere(const struct dpb_collection *c, uint32_t rank,
                                    struct placing *placing)
{
    const struct dpb_holding *said = &c->holdings[rank];
    struct dpb_range *owned = calloc(said->n_ranges + 1, sizeof *owned);
    char *piece = malloc(DPB_STORE_VALUE_BYTES);
    dpb_status status = owned && piece
                            ? take_state(c, rank, owned, piece, placing)
                            : dpb_fail(DPB_NO_MEMORY, "no memory to collect from rank %u", rank);
    free(owned);
    free(piece);
    return status;
}

static void collect_here(const struct dpb_collection *c, uint32_t rank, struct placing *placing)
{
    const struct dpb_mapping *mapped = &c->mapped[rank * SHARED];
    placing->owned = mapped[SHARED_OWNED].memory;
    if (mapped[SHARED_STATE].memory)
        place(placing, mapped[SHARED_STATE].memory,
              c->n_arrays * c->holdings[rank].n_elements * placing->element);
}

/* Each replica owns all of the state, each shard a part. Near ranks come first. */
dpb_status dpb_collect_state(const struct dpb_collection *c, void *arenas)
{
    const size_t element = dpb_dtype_size(c->layout->weight_type);
    uint64_t n = 0, all = c->layout->n_elements;
    for (int elsewhere = 0; elsewhere < 2; elsewhere++)
        for (uint32_t rank = 0; rank < dpb_world.n_ranks && n < all; rank++) {
            struct placing placing = {.arena = arenas,
                                      .n_ranges = c->holdings[rank].n_ranges,
                                      .arena_bytes = all * element,
                                      .element = element};
            if (is_mapped_by_0(rank) == (elsewhere == 1) || c->holdings[rank].n_elements == 0)
                continue;
            if (elsewhere)
                DPB_TRY(collect_elsewhere(c, rank, &placing));
            else
                collect_here(c, rank, &placing);
            n += c->holdings[rank].n_elements;
        }
    return DPB_OK;
}

/* ---- making and ending --------------------------------------------------------------------- */

dpb_status dpb_collect_open(const struct dpb_comm_plan *plan, const struct dpb_layout *layout,
                            struct dpb_optimizer *optimizer, uint32_t n_arrays, const char *comm,
                            struct dpb_collection *c)
{
    *c = (struct dpb_collection){
        .plan = plan, .layout = layout, .optimizer = optimizer, .comm = comm, .n_arrays = n_arrays};
    size_t bytes = c->plan->n_owned * sizeof *c->plan->owned;
    DPB_TRY(dpb_mapping_create("owned", bytes, &c->owned));
    if (bytes > 0)
        memcpy(c->owned.memory, c->plan->owned, bytes);
    c->mapped = calloc((size_t)dpb_world.n_ranks * SHARED, sizeof *c->mapped);
    DPB_TRY(dpb_allocated(c->mapped));
    const struct dpb_mapping mine[SHARED] = {
        [SHARED_STATE] = dpb_optimizer_mapping(c->optimizer), [SHARED_OWNED] = c->owned};
    DPB_TRY(dpb_world_share_with_0("optimizers", mine, SHARED, c->mapped));
    DPB_TRY(agree_on_sources(c));
    c->answerer = (struct dpb_answerer){.answer = give, .owner = c};
    snprintf(c->answerer.key, sizeof c->answerer.key, "collect/ask/%u", dpb_world.rank);
    return c->is_asked && dpb_world.role == DPB_SERVER
               ? dpb_answerer_start(&c->answerer, "checkpoints")
               : DPB_OK;
}

void dpb_collect_close(struct dpb_collection *c)
{
    dpb_answerer_stop(&c->answerer);
    for (uint32_t i = 0; c->mapped && i < dpb_world.n_ranks * SHARED; i++)
        if (i / SHARED != dpb_world.rank)
            dpb_mapping_destroy(&c->mapped[i]);
    free(c->mapped);
    free(c->holdings);
    dpb_mapping_destroy(&c->owned);
    *c = (struct dpb_collection){.is_asked = false};
}
