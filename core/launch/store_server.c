/*
 * store_server.c - the connections of the job's store: see store_server.h.
 */
#include "launch/store_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "world/store.h"

dpb_status dpb_store_server_create(uint32_t n_ranks, struct dpb_store_server **server)
{
    struct dpb_store_server *made = calloc(1, sizeof *made);
    if (made)
        made->connections = calloc(n_ranks, sizeof *made->connections);
    if (!made || !made->connections) {
        free(made);
        return dpb_fail(DPB_NO_MEMORY, "out of memory for the job's store");
    }
    made->n_ranks = n_ranks;
    for (uint32_t rank = 0; rank < n_ranks; rank++)
        made->connections[rank].fd = -1;
    *server = made;
    return DPB_OK;
}

void dpb_store_server_destroy(struct dpb_store_server *server)
{
    if (!server)
        return;
    for (uint32_t rank = 0; rank < server->n_ranks; rank++)
        store_close(&server->connections[rank]);
    for (size_t chain = 0; chain < STORE_CHAINS; chain++)
        while (server->chains[chain])
            store_entry_remove(server, server->chains[chain]);
    free(server->connections);
    free(server->waiters);
    free(server);
}

void dpb_store_server_attach(struct dpb_store_server *server, uint32_t rank, int fd)
{
    server->connections[rank].fd = fd;
}

void dpb_store_server_watch(const struct dpb_store_server *server, struct pollfd *fds)
{
    for (uint32_t rank = 0; rank < server->n_ranks; rank++) {
        const struct store_connection *connection = &server->connections[rank];
        bool output = connection->out.end > connection->out.begin;
        fds[rank] = (struct pollfd){.fd = connection->fd,
                                    .events = (short)(POLLIN | (output ? POLLOUT : 0))};
    }
}

bool dpb_store_server_said_bye(const struct dpb_store_server *server, uint32_t rank)
{
    return server->connections[rank].bye;
}

void dpb_store_server_on_post(struct dpb_store_server *server, dpb_store_on_post call,
                              void *context)
{
    server->on_post = call;
    server->on_post_context = context;
}

bool dpb_store_server_closed(const struct dpb_store_server *server, uint32_t rank)
{
    return server->connections[rank].fd < 0;
}

const char *dpb_store_server_fault(const struct dpb_store_server *server, uint32_t rank)
{
    const char *fault = server->connections[rank].fault;
    return fault[0] != '\0' ? fault : NULL;
}

/* Reads and handles all that is there; false once nothing more will come. */
static bool take_input(struct dpb_store_server *server, uint32_t rank)
{
    struct store_connection *connection = &server->connections[rank];
    while (connection->fd >= 0 && connection->fault[0] == '\0') {
        struct dpb_frame frame;
        const char *key;
        const void *value;
        char why[128];
        dpb_frame_state state = dpb_buffer_frame(&connection->in, &frame, &key, &value, why);
        if (state == DPB_FRAME_MALFORMED) {
            store_fault(connection, why);
        } else if (state == DPB_FRAME_WHOLE) {
            store_handle(server, rank, &frame, key, value);
            if (connection->fd >= 0)
                dpb_buffer_drop_frame(&connection->in, &frame);
        } else {
            ssize_t n = dpb_buffer_receive(&connection->in, connection->fd);
            if (n < 0 && errno == EAGAIN)
                return true;
            if (n <= 0)
                return false;
        }
    }
    return false;
}

void dpb_store_server_serve(struct dpb_store_server *server, uint32_t rank, short events)
{
    struct store_connection *connection = &server->connections[rank];
    if (connection->fd < 0)
        return;
    if ((events & POLLOUT) != 0 && dpb_buffer_send(&connection->out, connection->fd) < 0 &&
        errno != EAGAIN) {
        store_close(connection);
        return;
    }
    if ((events & (POLLIN | POLLHUP | POLLERR)) != 0 && !take_input(server, rank))
        store_close(connection);
}

void dpb_store_server_detach(struct dpb_store_server *server, uint32_t rank)
{
    struct store_connection *connection = &server->connections[rank];
    take_input(server, rank);
    store_close(connection);
    connection->gone = true;
    store_drop(server, rank);
}

void dpb_store_server_lose(struct dpb_store_server *server, uint32_t rank)
{
    struct store_connection *connection = &server->connections[rank];
    take_input(server, rank);
    store_close(connection);
    connection->lost = true;
    store_lose(server, rank);
}
