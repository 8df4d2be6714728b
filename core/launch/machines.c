/* machines.c - see machines.h. */
#include "launch/machines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A number of at most 4 digits; moves on. */
static bool take_number(const char **at, uint32_t *number)
{
    size_t digits = strspn(*at, "0123456789");
    if (digits == 0 || digits > 4)
        return false;
    *number = (uint32_t)strtoul(*at, NULL, 10);
    *at += digits;
    return true;
}

/* "1+2x3" */
static bool parse_counts(const char *at, uint32_t n_ranks, uint32_t *machines, uint32_t *n_machines,
                         char why[128])
{
    uint64_t rank = 0;
    *n_machines = 0;
    for (;;) {
        uint32_t n = 1, each = 0;
        bool good = take_number(&at, &each);
        if (good && *at == 'x') {
            n = each;
            at++;
            good = take_number(&at, &each);
        }
        if (!good || n == 0 || each == 0 || (*at != '+' && *at != '\0')) {
            snprintf(why, 128, "it is not of the form 2x2, 1+2x3 or 0,1,0,1");
            return false;
        }
        for (uint64_t i = 0; i < (uint64_t)n * each; i++, rank++)
            if (rank < n_ranks)
                machines[rank] = *n_machines + (uint32_t)(i / each);
        *n_machines += n;
        if (*at++ == '\0')
            break;
    }
    if (rank != n_ranks)
        snprintf(why, 128, "it is about %llu ranks, the job has %u", (unsigned long long)rank,
                 n_ranks);
    return rank == n_ranks;
}

/* "0,1,0,1" */
static bool parse_list(const char *at, uint32_t n_ranks, uint32_t *machines, uint32_t *n_machines,
                       char why[128])
{
    uint32_t rank = 0;
    *n_machines = 0;
    for (;;) {
        uint32_t machine;
        if (!take_number(&at, &machine) || (*at != ',' && *at != '\0')) {
            snprintf(why, 128, "it is not of the form 2x2, 1+2x3 or 0,1,0,1");
            return false;
        }
        if (machine > *n_machines) {
            snprintf(why, 128, "machine %u comes before machine %u", machine, *n_machines);
            return false;
        }
        *n_machines += machine == *n_machines;
        if (rank < n_ranks)
            machines[rank] = machine;
        rank++;
        if (*at++ == '\0')
            break;
    }
    if (rank != n_ranks)
        snprintf(why, 128, "it is about %u ranks, the job has %u", rank, n_ranks);
    return rank == n_ranks;
}

bool dpb_machines_parse(const char *text, uint32_t n_ranks, uint32_t *machines,
                        uint32_t *n_machines, char why[128])
{
    if (text[0] != '\0')
        return strchr(text, ',') ? parse_list(text, n_ranks, machines, n_machines, why)
                                 : parse_counts(text, n_ranks, machines, n_machines, why);
    memset(machines, 0, n_ranks * sizeof *machines);
    *n_machines = 1;
    return true;
}

/* Ranks from `rank` on that are on the same machine. */
static uint32_t run_length(const uint32_t *machines, uint32_t n_ranks, uint32_t rank)
{
    uint32_t end = rank + 1;
    while (end < n_ranks && machines[end] == machines[rank])
        end++;
    return end - rank;
}

/* Whether the ranks of every machine follow one another. */
static bool in_order(const uint32_t *machines, uint32_t n_ranks)
{
    for (uint32_t rank = 1; rank < n_ranks; rank++)
        if (machines[rank] != machines[rank - 1] && machines[rank] != machines[rank - 1] + 1)
            return false;
    return n_ranks == 0 || machines[0] == 0;
}

bool dpb_machines_format(const uint32_t *machines, uint32_t n_ranks, char *text, size_t capacity)
{
    size_t used = 0;
    bool ordered = in_order(machines, n_ranks);
    for (uint32_t rank = 0; rank < n_ranks && used < capacity;) {
        uint32_t length = ordered ? run_length(machines, n_ranks, rank) : 1, n = 1;
        while (ordered && rank + n * length < n_ranks &&
               run_length(machines, n_ranks, rank + n * length) == length)
            n++;
        int written;
        if (!ordered)
            written =
                snprintf(text + used, capacity - used, "%s%u", rank > 0 ? "," : "", machines[rank]);
        else if (n > 1)
            written =
                snprintf(text + used, capacity - used, "%s%ux%u", rank > 0 ? "+" : "", n, length);
        else
            written = snprintf(text + used, capacity - used, "%s%u", rank > 0 ? "+" : "", length);
        used += (size_t)written;
        rank += n * length;
    }
    return used < capacity;
}
