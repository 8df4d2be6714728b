/* store_entries.c - the entries of the job's store, by kind and key: see store_parts.h. */
#include <stdlib.h>
#include <string.h>

#include "launch/store_parts.h"

static struct store_entry **chain_of(struct dpb_store_server *server, const char *key)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (const char *c = key; *c != '\0'; c++)
        hash = (hash ^ (uint8_t)*c) * 16777619u;
    return &server->chains[hash % STORE_CHAINS];
}

struct store_entry *store_entry_find(struct dpb_store_server *server, const char *key,
                                     enum store_entry_kind kind)
{
    struct store_entry *entry = *chain_of(server, key);
    while (entry && (entry->kind != kind || strcmp(entry->key, key) != 0))
        entry = entry->next;
    return entry;
}

struct store_entry *store_entry_create(struct dpb_store_server *server, const char *key,
                                       enum store_entry_kind kind, const void *value,
                                       uint32_t bytes)
{
    struct store_entry *entry = calloc(1, sizeof *entry);
    if (!entry)
        return NULL;
    entry->value = malloc(bytes > 0 ? bytes : 1);
    entry->arrived = kind == STORE_BARRIER ? calloc(server->n_ranks, 1) : NULL;
    if (!entry->value || (kind == STORE_BARRIER && !entry->arrived)) {
        free(entry->value);
        free(entry->arrived);
        free(entry);
        return NULL;
    }
    entry->kind = kind;
    memcpy(entry->key, key, strlen(key) + 1);
    if (bytes > 0)
        memcpy(entry->value, value, bytes);
    entry->bytes = bytes;
    struct store_entry **chain = chain_of(server, key);
    entry->next = *chain;
    *chain = entry;
    return entry;
}

void store_entry_remove(struct dpb_store_server *server, struct store_entry *entry)
{
    struct store_entry **link = chain_of(server, entry->key);
    while (*link != entry)
        link = &(*link)->next;
    *link = entry->next;
    server->total_bytes -= entry->bytes;
    free(entry->value);
    free(entry->arrived);
    free(entry);
}
