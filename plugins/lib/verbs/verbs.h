/*
 * verbs.h - the transport of a ring (lib/transport.h) over RDMA.
 *
 * A chunk is two requests on the connection to the next member: its label, written into the next
 * place of a ring of labels there, and its payload, written to where it belongs (the peer's arena,
 * or a slot of its inbox) with the chunk's number as immediate data. Requests of a connection take
 * effect in order, so a receiver that sees the number has both, and no copy was made on the way.
 *
 * The receiver gives back places and slots by credits: messages without payload whose immediate
 * data are the slot that is free again, if any, and how many chunks were taken since the last one.
 * Nothing is sent that there is no place for, so no receiver is ever found not ready.
 *
 * InfiniBand Architecture Specification, volume 1, release 1.3: 9.7 (ordering, acknowledgement),
 * 10.7 (completions), 11.6.2 (their errors); annex A17 (RoCE v2).
 */
#ifndef DPB_PLUGINS_LIB_VERBS_VERBS_H
#define DPB_PLUGINS_LIB_VERBS_VERBS_H

#include "lib/transport.h"
#include "lib/verbs/options.h"

/* Opens the port; `connect` does the rest. */
dpb_status verbs_create(const struct dpb_host *host, const struct verbs_options *options,
                        uint32_t local_rank, struct transport **transport);

/* port_missing, for who knows of no ports. */
bool verbs_missing(char *text, size_t bytes);

#endif
