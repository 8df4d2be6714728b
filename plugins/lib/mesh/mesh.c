/* mesh.c - see mesh.h. */
#include "lib/mesh/mesh.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/mesh/mesh_transport.h"
#include "lib/tcp/wire.h"

#define HEADER_MAGIC UINT32_C(0x4d425044) /* "DPBM" */

/* Another rank. */
struct end {
    struct mesh_peer peer;
    uint64_t sent; /* messages taken on */
    uint64_t arrived[MESH_KINDS];
    bool left;
};

struct mesh {
    const struct dpb_host *host;
    struct mesh_transport *transport;
    struct mesh_sink sink;
    const char *const *kinds;
    uint32_t rank;
    struct end *ends; /* by link */
    struct doorbell *doorbell;
    struct pollfd *fds; /* the doorbell's, and the transport's */
};

/* ---- on the wire --------------------------------------------------------------------------- */

void mesh_write_header(uint8_t bytes[MESH_HEADER_BYTES], const struct mesh_label *label)
{
    uint8_t *at = wire_put(bytes, HEADER_MAGIC, 4);
    at = wire_put(at, label->kind, 4);
    at = wire_put(at, label->bucket, 4);
    at = wire_put(at, 0, 4);
    at = wire_put(at, label->exchange, 8);
    at = wire_put(at, label->at_bytes, 8);
    at = wire_put(at, label->bytes, 8);
    wire_put(at, label->word, 8);
}

bool mesh_read_header(const uint8_t bytes[MESH_HEADER_BYTES], struct mesh_label *label)
{
    const uint8_t *at = bytes;
    uint64_t magic = wire_get(&at, 4);
    label->kind = (uint32_t)wire_get(&at, 4);
    label->bucket = (uint32_t)wire_get(&at, 4);
    uint64_t unused = wire_get(&at, 4);
    label->exchange = wire_get(&at, 8);
    label->at_bytes = wire_get(&at, 8);
    label->bytes = wire_get(&at, 8);
    label->word = wire_get(&at, 8);
    return magic == HEADER_MAGIC && unused == 0 && label->kind <= MESH_BYE.kind;
}

/* ---- arriving messages --------------------------------------------------------------------- */

void mesh_describe(const struct mesh *mesh, const struct mesh_label *label,
                   char text[MESH_TEXT_BYTES])
{
    if (mesh->sink.describe) {
        mesh->sink.describe(label, text);
        return;
    }
    const char *kind = label->kind < MESH_KINDS ? mesh->kinds[label->kind] : NULL;
    snprintf(text, MESH_TEXT_BYTES, "%s of exchange %llu, bucket %u, %llu bytes for byte %llu",
             kind ? kind : "no kind of message", (unsigned long long)label->exchange, label->bucket,
             (unsigned long long)label->bytes, (unsigned long long)label->at_bytes);
}

static dpb_status refuse(const struct mesh *mesh, uint32_t link, const struct mesh_label *label,
                         const struct mesh_label *expected)
{
    char came[MESH_TEXT_BYTES], wanted[MESH_TEXT_BYTES] = "no such message now";
    mesh_describe(mesh, label, came);
    if (expected)
        mesh_describe(mesh, expected, wanted);
    return mesh->host->fail(DPB_FAILED,
                            "rank %u sent %s; rank %u expected %s: the two do not run the same "
                            "training",
                            mesh->ends[link].peer.rank, came, mesh->rank, wanted);
}

dpb_status mesh_refuse_bytes(const struct mesh *mesh, uint32_t link)
{
    return mesh->host->fail(DPB_FAILED, "rank %u sent bytes that are no message of this version",
                            mesh->ends[link].peer.rank);
}

/* Whether `a` came as `b` is expected. */
static bool same_label(const struct mesh_label *a, const struct mesh_label *b)
{
    return a->kind == b->kind && a->bucket == b->bucket && a->exchange == b->exchange &&
           a->at_bytes == b->at_bytes &&
           (a->bytes == b->bytes || (b->or_less && a->bytes < b->bytes));
}

static dpb_status check(const struct mesh *mesh, uint32_t link, uint64_t n,
                        const struct mesh_label *label)
{
    const struct mesh_sink *sink = &mesh->sink;
    struct mesh_label expected = {.kind = label->kind};
    if (label->kind >= MESH_KINDS)
        return refuse(mesh, link, label, NULL);
    if (sink->begins)
        return sink->begins(sink->owner, link, n, label);
    if (!sink->expects(sink->owner, link, label->kind, n, &expected))
        return refuse(mesh, link, label, NULL);
    return same_label(label, &expected) ? DPB_OK : refuse(mesh, link, label, &expected);
}

/* Trusts nothing in the label: the message must be expected, and fit its landing. */
dpb_status mesh_begins(const struct mesh *mesh, uint32_t link, uint64_t n,
                       const struct mesh_label *label, void **memory)
{
    DPB_TRY(check(mesh, link, n, label));
    const struct mesh_landing *landing = &mesh->ends[link].peer.landings[label->kind];
    if (label->at_bytes > landing->bytes || label->bytes > landing->bytes - label->at_bytes)
        return refuse(mesh, link, label, NULL);
    *memory = (char *)landing->memory + label->at_bytes;
    return DPB_OK;
}

void mesh_arrives(struct mesh *mesh, uint32_t link, const struct mesh_label *label)
{
    mesh->ends[link].arrived[label->kind]++;
    mesh->sink.arrived(mesh->sink.owner, link, label);
}

void mesh_leaves(struct mesh *mesh, uint32_t link)
{
    mesh->ends[link].left = true;
}

uint64_t mesh_arrived(const struct mesh *mesh, uint32_t link, uint32_t kind)
{
    return mesh->ends[link].arrived[kind];
}

bool mesh_left(const struct mesh *mesh, uint32_t link)
{
    return mesh->ends[link].left;
}

/* ---- the transport's ----------------------------------------------------------------------- */

uint32_t mesh_room(const struct mesh *mesh, uint32_t link)
{
    return mesh->transport->ops->room(mesh->transport, link);
}

void mesh_send(struct mesh *mesh, uint32_t link, const struct mesh_label *label,
               const void *payload)
{
    assert(mesh_room(mesh, link) > 0 && label->kind < MESH_KINDS);
    mesh->ends[link].sent++;
    mesh->transport->ops->send(mesh->transport, link, label, payload);
}

uint64_t mesh_sent(const struct mesh *mesh, uint32_t link)
{
    return mesh->ends[link].sent - (MESH_QUEUE - mesh_room(mesh, link));
}

bool mesh_idle(const struct mesh *mesh, uint32_t link)
{
    return mesh_room(mesh, link) == MESH_QUEUE;
}

dpb_status mesh_move(struct mesh *mesh, int64_t until_ns, bool *moved)
{
    return mesh->transport->ops->move(mesh->transport, until_ns, moved);
}

dpb_status mesh_wait(struct mesh *mesh, const struct dpb_wait *what)
{
    struct mesh_transport *transport = mesh->transport;
    dpb_status status = DPB_OK;
    mesh->host->note("wait_peer", what->bucket, what->peer);
    mesh->fds[0] = (struct pollfd){.fd = doorbell_fd(mesh->doorbell), .events = POLLIN};
    if (doorbell_arm(mesh->doorbell) && transport->ops->watch(transport, mesh->fds + 1))
        status = mesh->host->poll(mesh->fds, 1 + transport->ops->n_watched(transport), what, NULL);
    doorbell_disarm(mesh->doorbell, mesh->fds[0].revents != 0);
    return status;
}

/* ---- making and ending --------------------------------------------------------------------- */

dpb_status mesh_open(const struct mesh_args *args, struct mesh **made)
{
    struct mesh *mesh = calloc(1, sizeof *mesh);
    if (mesh)
        mesh->ends = calloc(args->n_peers + 1, sizeof *mesh->ends);
    if (!mesh || !mesh->ends) {
        free(mesh);
        args->transport->ops->close(args->transport, false);
        return args->host->fail(DPB_NO_MEMORY, "no memory for links to %u ranks", args->n_peers);
    }
    mesh->host = args->host;
    mesh->transport = args->transport;
    mesh->sink = args->sink;
    mesh->kinds = args->kinds;
    mesh->rank = args->rank;
    mesh->doorbell = args->doorbell;
    for (uint32_t i = 0; i < args->n_peers; i++)
        mesh->ends[i].peer = args->peers[i];
    dpb_status status = mesh->transport->ops->connect(mesh->transport, args, mesh);
    if (status == DPB_OK) {
        const uint32_t n_fds = 1 + mesh->transport->ops->n_watched(mesh->transport);
        mesh->fds = calloc(n_fds, sizeof *mesh->fds);
        if (!mesh->fds)
            status = args->host->fail(DPB_NO_MEMORY, "no memory to wait for %s", args->what);
    }
    if (status != DPB_OK) {
        mesh_close(mesh, false);
        return status;
    }
    *made = mesh;
    return DPB_OK;
}

void mesh_close(struct mesh *mesh, bool through)
{
    if (!mesh)
        return;
    mesh->transport->ops->close(mesh->transport, through);
    free(mesh->ends);
    free(mesh->fds);
    free(mesh);
}
