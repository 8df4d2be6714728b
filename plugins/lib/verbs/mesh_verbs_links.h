/*
 * mesh_verbs_links.h - the links of a mesh over RDMA (mesh_verbs.h): mesh_verbs_connect.c makes
 * links, mesh_verbs.c uses links.
 */
#ifndef DPB_PLUGINS_LIB_VERBS_MESH_VERBS_LINKS_H
#define DPB_PLUGINS_LIB_VERBS_MESH_VERBS_LINKS_H

#include "lib/mesh/mesh_transport.h"
#include "lib/verbs/adapter.h"

enum {
    PLACES = 32,   /* labels sent to a rank whose places the rank has not returned */
    REQUESTS = 48, /* posted writes of a link */
    CREDITS = 8,   /* under way; a credit is for a quarter of the places */
    NUMBERS = CREDITS + 1
};

/* The kind of a request; above the link's number in wr_id. */
enum kind { KIND_PART, KIND_LAST, KIND_CREDIT, KIND_BYE, KIND_IN };

/* A place for a label, at either end. */
struct place {
    uint8_t header[MESH_HEADER_BYTES];
    uint8_t unused[DPB_CACHE_LINE - MESH_HEADER_BYTES];
};

_Static_assert(sizeof(struct place) == DPB_CACHE_LINE, "a place is a cache line");

struct message {
    struct mesh_label label;
    const char *payload;
    uint64_t posted_bytes;
};

struct way {
    struct link link;
    struct place *in, *out; /* PLACES each */
    struct remote labels, landings[MESH_KINDS];
    struct message queue[MESH_QUEUE];
    uint32_t head, cursor, tail; /* they only rise: delivered, being posted, accepted */
    uint32_t n_requests;         /* posted, not completed */
    uint64_t n_sent, n_returned; /* labels */
    uint64_t n_received;
    uint32_t n_unreturned, n_credits; /* labels taken, but not returned yet; credits under way */
    bool left, bye_sent;              /* the peer's good-bye has come; ours is with the peer */
    bool failed;                      /* after the good-bye or while closing: nothing can be sent */
};

struct region {
    const char *at;
    uint64_t bytes;
    struct ibv_mr *registered;
};

struct mesh_verbs {
    struct mesh_transport base;
    const struct dpb_host *host;
    struct mesh *mesh;
    struct adapter adapter;
    uint32_t n_ways, n_regions;
    struct way *ways;
    struct region *regions;
    struct place *places;
    struct ibv_mr *places_region;
    uint64_t largest_bytes;          /* of a write */
    const struct pollfd *awaited;    /* the argument of poll; NULL: no descriptor to check */
    const struct doorbell *doorbell; /* struct mesh_args */
    bool closing;
    dpb_status status; /* a failure in a function that returns no status */
};

static inline uint64_t request_id(enum kind kind, uint32_t link)
{
    return (uint64_t)kind << 32 | link;
}

static inline size_t mesh_verbs_places_bytes(const struct mesh_verbs *verbs)
{
    return ((size_t)verbs->n_ways * 2 * PLACES + 1) * sizeof *verbs->places;
}

/* As in struct mesh_transport_ops. */
dpb_status mesh_verbs_connect(struct mesh_transport *transport, const struct mesh_args *args,
                              struct mesh *mesh);

#endif
