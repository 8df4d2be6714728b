/* tcp_connect.c - see tcp_connect.h. */
#include "lib/tcp/tcp_connect.h"

#include <arpa/inet.h>
#include <stdalign.h>
#include <string.h>

#include "lib/tcp/interface.h"

dpb_status dpb_tcp_check_port(const struct dpb_host *host, const struct dpb_tcp_options *tcp,
                              uint32_t rank)
{
    if (tcp->port == 0 || tcp->port + rank <= UINT16_MAX)
        return DPB_OK;
    return host->fail(DPB_UNSUPPORTED, "comm.port = %lld: rank %u would listen at %lld",
                      (long long)tcp->port, rank, (long long)tcp->port + rank);
}

dpb_status dpb_tcp_connect(const struct dpb_host *host, const struct dpb_tcp_options *tcp,
                           const struct dpb_connect_args *args)
{
    struct dpb_interface found;
    struct dpb_connect_args own = *args; /* `found` ends with this function */
    const int64_t port = tcp->port != 0 ? tcp->port + args->rank : 0;
    own.store = host->store;
    if (own.n_peers == 0)
        return host->connect(&own);
    DPB_TRY(dpb_interface_find(host, tcp->interface, &found));
    DPB_TRY(dpb_tcp_check_port(host, tcp, args->rank));
    if (found.socket.any.sa_family == AF_INET)
        found.socket.ip4.sin_port = htons((uint16_t)port);
    else
        found.socket.ip6.sin6_port = htons((uint16_t)port);
    own.interface = found.name;
    own.address = &found.socket.any;
    own.address_bytes = found.socket_bytes;
    DPB_TRY(host->connect(&own));
    bool warned = host->n_machines() == 1 || tcp->interface[0] != '\0';
    for (uint32_t i = 0; i < own.n_peers && !warned; i++)
        warned = dpb_interface_warn(host, &found, own.peers[i].rank, own.peers[i].fds[0]);
    return DPB_OK;
}

/* ---- options behind a plugin's ------------------------------------------------------------- */

enum { OWN_OPTIONS = 64 };

struct tcp_alone {
    struct dpb_tcp_options tcp;
};

static const struct dpb_option tcp_rows[] = {DPB_TCP_OPTION_ROWS(struct tcp_alone, NULL), {0}};

static bool check_option(const struct dpb_host *host, const struct dpb_plugin *own, size_t i)
{
    if (i == OWN_OPTIONS) {
        host->fail(DPB_USAGE, "comm '%s' has more than %d options", own->name, OWN_OPTIONS);
        return false;
    }
    for (const struct dpb_option *row = tcp_rows; row->name; row++)
        if (strcmp(row->name, own->options[i].name) == 0) {
            host->fail(DPB_USAGE,
                       "comm '%s': the library that connects its workers has an option '%s', too; "
                       "give the plugin's another name",
                       own->name, row->name);
            return false;
        }
    return true;
}

const struct dpb_plugin *dpb_tcp_add_options(const struct dpb_host *host,
                                             const struct dpb_plugin *own)
{
    static struct dpb_plugin extended;
    static struct dpb_option rows[OWN_OPTIONS + sizeof tcp_rows / sizeof *tcp_rows];
    const size_t unit = alignof(struct dpb_tcp_options);
    const size_t at = (own->options_size + unit - 1) / unit * unit;
    size_t n = 0;
    for (; own->options && own->options[n].name; n++) {
        if (!check_option(host, own, n))
            return NULL;
        rows[n] = own->options[n];
    }
    for (const struct dpb_option *row = tcp_rows; row->name; row++) {
        rows[n] = *row;
        rows[n++].offset += at;
    }
    extended = *own;
    extended.options = rows;
    extended.options_size = at + sizeof(struct dpb_tcp_options);
    return &extended;
}
