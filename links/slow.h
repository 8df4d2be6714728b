/*
 * slow.h - names the machines, and the directions, whose links are slow, from the ways of `dpbench
 * links network`.
 *
 * The largest size that all ways have decides. A machine sends slowly if its ways to all others
 * are slow, and receives slowly if the ways from all others to it are. Its rate is the geometric
 * mean over these ways, each by its median, with the 95 % interval of Student's t. The rate of the
 * others is the median of the ways between other machines. A machine is slow if the upper end of
 * its interval is below DPB_LINKS_SLOW of the others. The slowest is named first; its ways then
 * leave the comparison, so that its partners are not slow by it.
 *
 * A way that no slow machine explains is judged alone, by the windows of its time, against the
 * median of all other ways. Between two machines there are only such ways.
 */
#ifndef DPB_LINKS_SLOW_H
#define DPB_LINKS_SLOW_H

#include <jansson.h>
#include <stdio.h>

#define DPB_LINKS_SLOW 0.8

/* The list of the slow, the slowest machine first, from `machines` and `ways` of the part `network`
 * while its values have `windows`; null if a way is missing or the ways have no common size. A
 * row's `from` or `to` is null if it stands for all others. @owned. */
json_t *dpb_links_slow(const json_t *network);

/* For people, from the document alone. */
void dpb_links_slow_print(const json_t *network, FILE *out);

#endif
