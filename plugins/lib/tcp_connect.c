/* tcp_connect.c - see tcp_connect.h. */
#include "lib/tcp_connect.h"

#include <arpa/inet.h>

#include "lib/interface.h"

dpb_status tcp_connect(const struct tcp_args *tcp, const struct dpb_connect_args *args)
{
    struct interface found;
    struct dpb_connect_args own = *args; /* `found` ends with this function */
    const int64_t port = tcp->port != 0 ? tcp->port + args->rank : 0;
    own.store = tcp->host->store;
    if (own.n_peers == 0)
        return tcp->host->connect(&own);
    DPB_TRY(interface_find(tcp->host, tcp->interface, tcp->one_machine, &found));
    if (port > UINT16_MAX)
        return tcp->host->fail(DPB_USAGE, "comm.port = %lld: rank %u would listen at %lld",
                               (long long)tcp->port, args->rank, (long long)port);
    if (found.socket.any.sa_family == AF_INET)
        found.socket.ip4.sin_port = htons((uint16_t)port);
    else
        found.socket.ip6.sin6_port = htons((uint16_t)port);
    own.interface = found.name;
    own.address = &found.socket.any;
    own.address_bytes = found.socket_bytes;
    return tcp->host->connect(&own);
}
