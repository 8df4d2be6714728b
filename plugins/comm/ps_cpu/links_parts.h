/*
 * links_parts.h - the parts of the links between workers and servers (ps.h): messages and the sink
 * of the mesh (links_messages.c), exchanges (links.c), additions for ps_async (links_async.c),
 * making and ending (links_open.c).
 */
#ifndef DPB_PLUGINS_COMM_PS_CPU_LINKS_PARTS_H
#define DPB_PLUGINS_COMM_PS_CPU_LINKS_PARTS_H

#include "comm/ps_cpu/ps.h"

enum { STEP, GRADIENTS, WEIGHTS, LOAD, LOADED, SAY, MODEL, AGE };
enum { STEP_BYTES = 5 * 8 };

struct link {
    uint32_t rank;
    bool is_shard, is_worker; /* for this rank */
    bool shares;              /* links_memory.machines: slices go through shared memory */
    char *inbox;              /* its gradients; NULL: the peer pushes none here */
    char *outbox;             /* weights as last given to the peer; NULL: sent from the arena */
    char *pushed_from;        /* shares: the arena from which the peer pushes */
    uint64_t pushed, given;   /* slices sent to the peer */
    uint64_t asked;           /* slices of weights that the peer is to send */
    uint64_t freed, turns;    /* the peer's: used gradients, in slices; ended turns */
    uint64_t n_loads;         /* sent, or answered */
    uint64_t said, models, n_ages; /* sent: words, slices of the model; expected: slices; ages */
    uint64_t word;                 /* the last one from the peer */
    uint64_t ages[LINKS_AGES];     /* of the own gradients, by exchange */
    /* By bucket, on this machine's clock: when a slice begins to arrive, and is here. */
    int64_t *began_ns, *came_ns;   /* gradients */
    int64_t *given_ns, *waited_ns; /* weights: here; wait of the shard for late workers */
    uint8_t *step;                 /* parameters that the peer has sent */
};

struct links {
    const struct dpb_host *host;
    struct strategy *base;
    struct mesh *mesh;
    struct link *links;
    uint32_t *by_rank; /* NONE: on this machine */
    uint32_t n;
    uint64_t slice_elements; /* places in the outbox, and without a codec in the inbox */
    uint64_t inbox_slot;     /* bytes of a place in the inbox */
    struct links_memory memory;
    char *inbox; /* of all links; with links_memory.accrues an arena: the sum of gradients */
    uint64_t inbox_bytes;
    uint8_t *steps;   /* parameters: own, then of each rank */
    uint32_t *comers; /* workers whose turns are here whole, in order of arrival */
    uint64_t n_come, n_taken;
    struct links_turn turn;                /* of this worker */
    uint64_t n_turns, n_pushes, n_fetches; /* begun */
};

static inline uint64_t links_place_of(const struct links *links, uint64_t bucket, dpb_dtype type)
{
    return bucket * links->slice_elements * dpb_dtype_size(type);
}

/* Where pushed gradients land: with a codec behind the head of a message. */
static inline uint64_t links_inbox_at(const struct links *links, uint64_t bucket)
{
    return bucket * links->inbox_slot +
           (links->base->args.codec ? sizeof(struct coded_message) : 0);
}

static inline struct link *links_link_to(const struct links *links, uint32_t rank)
{
    return &links->links[links->by_rank[rank]];
}

/* ---- messages (links_messages.c) ----------------------------------------------------------- */

void links_write_step(uint8_t bytes[STEP_BYTES], const struct links_news *news);
struct links_news links_read_step(const uint8_t bytes[STEP_BYTES]);

/* The n-th slice between a worker and a shard (`weights`: the way back). */
struct mesh_label links_slice_label(const struct links *links, bool weights, uint32_t shard,
                                    uint64_t n);
/* The n-th slice of the model lands where its weights lie. */
struct mesh_label links_model_label(const struct links *links, uint32_t shard, uint64_t n);
/* The label for the message: no payload with shared memory, where the peer accesses the slice. */
struct mesh_label links_as_sent(const struct link *link, struct mesh_label label);
struct mesh_label links_step_label(uint64_t turn);
/* A message without payload: the n-th of its kind, with a word. */
struct mesh_label links_word_label(uint32_t kind, uint64_t n, uint64_t word);
/* `exchange` has the count of this kind. */
struct mesh_label links_load_label(const struct links *links, uint32_t kind, uint64_t n);

/* The answer, and the message, whose content lands at `at_bytes`. */
struct coded_message *links_answer_at(const struct links *links, uint64_t at_bytes);
struct coded_message *links_message_at(const struct link *link, uint64_t at_bytes);

/* The sink of the mesh. */
bool links_expects(void *links, uint32_t number, uint32_t kind, uint64_t n,
                   struct mesh_label *label);
void links_arrived(void *links, uint32_t number, const struct mesh_label *label);

/* ---- an exchange (links.c) ----------------------------------------------------------------- */

/* Sends the turn's parameters to the servers, which have all of the turn before, parameters
 * included. */
void links_begin_turn(struct links *links);

#endif
