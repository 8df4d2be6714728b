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
    struct dpb_mesh_peer peer;
    uint64_t sent; /* messages taken on */
    uint64_t arrived[DPB_MESH_KINDS];
    bool left;
};

struct dpb_mesh {
    const struct dpb_host *host;
    struct dpb_mesh_transport *transport;
    struct dpb_mesh_sink sink;
    const char *const *kinds;
    uint32_t rank;
    struct end *ends; /* by link */
    struct dpb_doorbell *doorbell;
    struct pollfd *fds; /* the doorbell's, and the transport's */
};

/* ---- on the wire --------------------------------------------------------------------------- */

void dpb_mesh_write_header(uint8_t bytes[DPB_MESH_HEADER_BYTES], const struct dpb_mesh_label *label)
{
    uint8_t *at = dpb_wire_put(bytes, HEADER_MAGIC, 4);
    at = dpb_wire_put(at, label->kind, 4);
    at = dpb_wire_put(at, label->bucket, 4);
    at = dpb_wire_put(at, 0, 4);
    at = dpb_wire_put(at, label->exchange, 8);
    at = dpb_wire_put(at, label->at_bytes, 8);
    at = dpb_wire_put(at, label->bytes, 8);
    dpb_wire_put(at, label->word, 8);
}

bool dpb_mesh_read_header(const uint8_t bytes[DPB_MESH_HEADER_BYTES], struct dpb_mesh_label *label)
{
    const uint8_t *at = bytes;
    uint64_t magic = dpb_wire_get(&at, 4);
    label->kind = (uint32_t)dpb_wire_get(&at, 4);
    label->bucket = (uint32_t)dpb_wire_get(&at, 4);
    uint64_t unused = dpb_wire_get(&at, 4);
    label->exchange = dpb_wire_get(&at, 8);
    label->at_bytes = dpb_wire_get(&at, 8);
    label->bytes = dpb_wire_get(&at, 8);
    label->word = dpb_wire_get(&at, 8);
    return magic == HEADER_MAGIC && unused == 0 && label->kind <= DPB_MESH_BYE.kind;
}

/* ---- arriving messages --------------------------------------------------------------------- */

void dpb_mesh_describe(const struct dpb_mesh *mesh, const struct dpb_mesh_label *label,
                       char text[DPB_MESH_TEXT_BYTES])
{
    if (mesh->sink.describe) {
        mesh->sink.describe(label, text);
        return;
    }
    const char *kind = label->kind < DPB_MESH_KINDS ? mesh->kinds[label->kind] : NULL;
    snprintf(text, DPB_MESH_TEXT_BYTES, "%s of exchange %llu, bucket %u, %llu bytes for byte %llu",
             kind ? kind : "no kind of message", (unsigned long long)label->exchange, label->bucket,
             (unsigned long long)label->bytes, (unsigned long long)label->at_bytes);
}

static dpb_status refuse(const struct dpb_mesh *mesh, uint32_t link,
                         const struct dpb_mesh_label *label, const struct dpb_mesh_label *expected)
{
    char came[DPB_MESH_TEXT_BYTES], wanted[DPB_MESH_TEXT_BYTES] = "no such message now";
    dpb_mesh_describe(mesh, label, came);
    if (expected)
        dpb_mesh_describe(mesh, expected, wanted);
    return mesh->host->fail(DPB_FAILED,
                            "rank %u sent %s; rank %u expected %s: the two do not run the same "
                            "training",
                            mesh->ends[link].peer.rank, came, mesh->rank, wanted);
}

dpb_status dpb_mesh_refuse_bytes(const struct dpb_mesh *mesh, uint32_t link)
{
    return mesh->host->fail(DPB_FAILED, "rank %u sent bytes that are no message of this version",
                            mesh->ends[link].peer.rank);
}

/* Whether `a` came as `b` is expected. */
static bool same_label(const struct dpb_mesh_label *a, const struct dpb_mesh_label *b)
{
    return a->kind == b->kind && a->bucket == b->bucket && a->exchange == b->exchange &&
           a->at_bytes == b->at_bytes &&
           (a->bytes == b->bytes || (b->or_less && a->bytes < b->bytes));
}

static dpb_status check(const struct dpb_mesh *mesh, uint32_t link, uint64_t n,
                        const struct dpb_mesh_label *label)
{
    const struct dpb_mesh_sink *sink = &mesh->sink;
    struct dpb_mesh_label expected = {.kind = label->kind};
    if (label->kind >= DPB_MESH_KINDS)
        return refuse(mesh, link, label, NULL);
    if (sink->begins)
        return sink->begins(sink->owner, link, n, label);
    if (!sink->expects(sink->owner, link, label->kind, n, &expected))
        return refuse(mesh, link, label, NULL);
    return same_label(label, &expected) ? DPB_OK : refuse(mesh, link, label, &expected);
}

/* Trusts nothing in the label: the message must be expected, and fit its landing. */
dpb_status dpb_mesh_begins(const struct dpb_mesh *mesh, uint32_t link, uint64_t n,
                           const struct dpb_mesh_label *label, void **memory)
{
    DPB_TRY(check(mesh, link, n, label));
    const struct dpb_mesh_landing *landing = &mesh->ends[link].peer.landings[label->kind];
    if (label->at_bytes > landing->bytes || label->bytes > landing->bytes - label->at_bytes)
        return refuse(mesh, link, label, NULL);
    *memory = (char *)landing->memory + label->at_bytes;
    return DPB_OK;
}

void dpb_mesh_arrives(struct dpb_mesh *mesh, uint32_t link, const struct dpb_mesh_label *label)
{
    mesh->ends[link].arrived[label->kind]++;
    mesh->sink.arrived(mesh->sink.owner, link, label);
}

void dpb_mesh_leaves(struct dpb_mesh *mesh, uint32_t link)
{
    mesh->ends[link].left = true;
}

uint64_t dpb_mesh_arrived(const struct dpb_mesh *mesh, uint32_t link, uint32_t kind)
{
    return mesh->ends[link].arrived[kind];
}

bool dpb_mesh_left(const struct dpb_mesh *mesh, uint32_t link)
{
    return mesh->ends[link].left;
}

/* ---- the transport's ----------------------------------------------------------------------- */

uint32_t dpb_mesh_room(const struct dpb_mesh *mesh, uint32_t link)
{
    return mesh->transport->ops->room(mesh->transport, link);
}

void dpb_mesh_send(struct dpb_mesh *mesh, uint32_t link, const struct dpb_mesh_label *label,
                   const void *payload)
{
    assert(dpb_mesh_room(mesh, link) > 0 && label->kind < DPB_MESH_KINDS);
    mesh->ends[link].sent++;
    mesh->transport->ops->send(mesh->transport, link, label, payload);
}

uint64_t dpb_mesh_sent(const struct dpb_mesh *mesh, uint32_t link)
{
    return mesh->ends[link].sent - (DPB_MESH_QUEUE - dpb_mesh_room(mesh, link));
}

bool dpb_mesh_idle(const struct dpb_mesh *mesh, uint32_t link)
{
    return dpb_mesh_room(mesh, link) == DPB_MESH_QUEUE;
}

dpb_status dpb_mesh_move(struct dpb_mesh *mesh, int64_t until_ns, bool *moved)
{
    return mesh->transport->ops->move(mesh->transport, until_ns, moved);
}

dpb_status dpb_mesh_wait(struct dpb_mesh *mesh, const struct dpb_wait *what)
{
    struct dpb_mesh_transport *transport = mesh->transport;
    dpb_status status = DPB_OK;
    mesh->host->note("wait_peer", what->bucket, what->peer);
    mesh->fds[0] = (struct pollfd){.fd = dpb_doorbell_fd(mesh->doorbell), .events = POLLIN};
    if (dpb_doorbell_arm(mesh->doorbell) && transport->ops->watch(transport, mesh->fds + 1))
        status = mesh->host->poll(mesh->fds, 1 + transport->ops->n_watched(transport), what, NULL);
    dpb_doorbell_disarm(mesh->doorbell, mesh->fds[0].revents != 0);
    return status;
}

/* ---- making and ending --------------------------------------------------------------------- */

dpb_status dpb_mesh_open(const struct dpb_mesh_args *args, struct dpb_mesh **made)
{
    struct dpb_mesh *mesh = calloc(1, sizeof *mesh);
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
        dpb_mesh_close(mesh, false);
        return status;
    }
    *made = mesh;
    return DPB_OK;
}

void dpb_mesh_close(struct dpb_mesh *mesh, bool through)
{
    if (!mesh)
        return;
    mesh->transport->ops->close(mesh->transport, through);
    free(mesh->ends);
    free(mesh->fds);
    free(mesh);
}
