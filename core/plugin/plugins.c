/*
 * plugins.c - finds, loads and checks plugins.
 *
 * A shared object is loaded once a process and kept, with the result, in a list that is never
 * freed: dlclose would pull code from under threads that a library has started.
 */
#include "plugin/plugins.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/options.h"
#include "base/parse.h"
#include "base/text.h"
#include "plugin/detach.h"
#include "plugin/trial.h"

enum { MESSAGE_BYTES = 4096 };

/* NULL: it was built, or is none of ours. */
static const char *why_not_built(dpb_plugin_kind kind, const char *name)
{
    for (const struct dpb_plugin_not_built *row = dpb_plugins_not_built; row->name; row++)
        if (row->kind == kind && strcmp(row->name, name) == 0)
            return row->reason;
    return NULL;
}

/* A shared object and the result of loading it: a chain of plugins or the reason against it. */
struct object {
    struct object *next;
    char *path; /* resolved */
    dpb_plugin_kind kind;
    const struct dpb_plugin *first; /* NULL: refused */
    dpb_status status;              /* of the refusal */
    char *reason;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct object *objects; /* all that this process has loaded, the lock held */

/* ---- loading ------------------------------------------------------------------------------- */

/*
 * The host table that entries get. Its `fail` keeps the message of a refusal while an entry runs:
 * looking at a plugin that cannot work here is not yet an error of this process.
 */
static struct dpb_host entry_host;
static _Thread_local struct object *entering;

DPB_PRINTF(2, 3)
static dpb_status entry_fail(dpb_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (!entering) {
        dpb_failv(status, format, arguments);
    } else if (!entering->reason) {
        char text[DPB_REASON_BYTES];
        vsnprintf(text, sizeof text, format, arguments);
        entering->reason = strdup(text);
        entering->status = status;
    }
    va_end(arguments);
    return status;
}

static const char *reason_of(const struct object *object)
{
    return object->reason ? object->reason : "out of memory";
}

/* Keeps the first reason of an object. Returns the kept one, which lives as long as the process. */
DPB_PRINTF(2, 3)
static const char *keep_reason(struct object *object, const char *format, ...)
{
    char text[DPB_REASON_BYTES];
    DPB_PRINT_ARGUMENTS(text, sizeof text, format);
    if (!object->reason)
        object->reason = strdup(text);
    return reason_of(object);
}

/* Those that came with dpbench need no trial. */
static bool is_own_file(const char *path);
static bool tries; /* the lock held: this process looks at whatever lies there */
static bool detaches;

void dpb_plugins_detach(void)
{
    detaches = true;
}

/* Loads the object. Returns the reason against it, which may be in `text`, or NULL. */
static const char *enter(struct object *object, const struct dpb_host *host,
                         char text[DPB_REASON_BYTES])
{
    if (!dpb_trial_look(object->path, text, DPB_REASON_BYTES) ||
        (tries && !is_own_file(object->path) && !dpb_trial_load(object->path, host, text)))
        return text;
    void *handle = dlopen(object->path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *why = dlerror();
        size_t n = strlen(object->path);
        bool named = dpb_begins_with(why, object->path) && dpb_begins_with(why + n, ": ");
        return named ? why + n + 2 : why; /* messages begin with the path anyway */
    }
    if (detaches)
        dpb_detach(object->path);
    const struct dpb_plugin *(*entry)(const struct dpb_host *);
    *(void **)&entry = dlsym(handle, "dpb_plugin_entry");
    if (!entry)
        return "it exports no dpb_plugin_entry: this is no dpbench plugin";
    entry_host = *host;
    entry_host.fail = entry_fail;
    entering = object;
    object->first = entry(&entry_host);
    entering = NULL;
    if (!object->first)
        return object->reason ? NULL : "its entry returned NULL and gave no reason";
    return dpb_plugin_check(object->first, object->kind, text) ? NULL : text;
}

static void load_object(struct object *object, const struct dpb_host *host)
{
    char text[DPB_REASON_BYTES];
    const char *reason = enter(object, host, text);
    if (!reason)
        return;
    object->first = NULL;
    object->status = DPB_UNSUPPORTED;
    free(object->reason);
    object->reason = strdup(reason);
}

/* The object at `path`, which exists; loaded when it has not been yet. NULL: out of memory. */
static struct object *object_at(const char *path, dpb_plugin_kind kind, const struct dpb_host *host)
{
    char resolved[PATH_MAX];
    if (!realpath(path, resolved))
        snprintf(resolved, sizeof resolved, "%s", path);
    for (struct object *object = objects; object; object = object->next)
        if (strcmp(object->path, resolved) == 0 && object->kind == kind)
            return object;
    struct object *object = calloc(1, sizeof *object);
    if (!object || !(object->path = strdup(resolved))) {
        free(object);
        return NULL;
    }
    object->kind = kind;
    object->next = objects;
    objects = object;
    load_object(object, host);
    return object;
}

static const struct dpb_plugin *find_in(const struct object *object, const char *name)
{
    for (const struct dpb_plugin *p = object->first; p; p = p->next)
        if (strcmp(p->name, name) == 0)
            return p;
    return NULL;
}

/* ---- searching ----------------------------------------------------------------------------- */

struct search {
    char **directories; /* @owned: as the user wrote them, each place once */
    size_t n;
};

static void search_destroy(struct search *search)
{
    for (size_t i = 0; i < search->n; i++)
        free(search->directories[i]);
    free(search->directories);
}

static bool same_place(const char *a, const char *b)
{
    char ra[PATH_MAX], rb[PATH_MAX];
    if (!realpath(a, ra) || !realpath(b, rb))
        return strcmp(a, b) == 0;
    return strcmp(ra, rb) == 0;
}

static dpb_status search_add(struct search *search, const char *directory, size_t length)
{
    if (length == 0)
        return DPB_OK;
    char *copy = strndup(directory, length);
    for (size_t i = 0; copy && i < search->n; i++) {
        if (same_place(search->directories[i], copy)) {
            free(copy);
            return DPB_OK;
        }
    }
    char **grown =
        copy ? realloc(search->directories, (search->n + 1) * sizeof *search->directories) : NULL;
    if (!grown) {
        free(copy);
        return dpb_allocated(grown);
    }
    search->directories = grown;
    search->directories[search->n++] = copy;
    return DPB_OK;
}

/* dpbench's own directories: of a build, of an installation. False: there is no such one. */
static bool own_place(size_t i, char directory[PATH_MAX])
{
    char own[PATH_MAX - 32];
    if (i > 1 || !dpb_own_directory(own, sizeof own))
        return false;
    snprintf(directory, PATH_MAX, i == 0 ? "%s/plugins" : "%s/../lib/dpbench", own);
    return true;
}

/* The caller destroys the search, also after a failure. */
static dpb_status search_create(struct search *search)
{
    *search = (struct search){.n = 0};
    const char *path = getenv("DPBENCH_PLUGIN_PATH");
    while (path && *path != '\0') {
        size_t length = strcspn(path, ":");
        DPB_TRY(search_add(search, path, length));
        path += length + (path[length] == ':' ? 1 : 0);
    }
    char directory[PATH_MAX];
    for (size_t i = 0; own_place(i, directory); i++)
        DPB_TRY(search_add(search, directory, strlen(directory)));
    return DPB_OK;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Whether `file` is KIND_*.so. */
static bool is_file_of(const char *file, dpb_plugin_kind kind)
{
    const char *prefix = dpb_plugin_kind_name[kind];
    const size_t n = strlen(prefix);
    return dpb_begins_with(file, prefix) && file[n] == '_' && dpb_ends_on(file + n + 1, ".so");
}

/* Whether `path` ends in KIND_NAME.so. */
static bool is_file_name_of(const char *path, dpb_plugin_kind kind, const char *name)
{
    char file[NAME_MAX + 1];
    const char *slash = strrchr(path, '/');
    snprintf(file, sizeof file, "%s_%s.so", dpb_plugin_kind_name[kind], name);
    return strcmp(slash ? slash + 1 : path, file) == 0;
}

/* Calls visit for each KIND_*.so of the directories, in order, until it returns false. */
static void search_visit(const struct search *search, dpb_plugin_kind kind,
                         bool (*visit)(void *context, const char *path), void *context)
{
    bool go_on = true;
    for (size_t i = 0; go_on && i < search->n; i++) {
        struct dirent **entries;
        int n = scandir(search->directories[i], &entries, NULL, by_name);
        for (int j = 0; j < n; j++) {
            char path[PATH_MAX];
            if (go_on && is_file_of(entries[j]->d_name, kind) &&
                (size_t)snprintf(path, sizeof path, "%s/%s", search->directories[i],
                                 entries[j]->d_name) < sizeof path)
                go_on = visit(context, path);
            free(entries[j]);
        }
        if (n >= 0)
            free(entries);
    }
}

/* ---- one plugin by its name ---------------------------------------------------------------- */

/* A search and its finds, for the message of its failure. */
struct lookup {
    dpb_plugin_kind kind;
    const char *name;
    char at[512]; /* "FILE:LINE: " of the name, or "" */
    const struct dpb_host *host;
    const struct dpb_plugin *found;
    char array[MESSAGE_BYTES];
    struct dpb_text tried; /* in `array`: each file that was looked at, the reason against it */
    const char *names[DPB_PLUGIN_CHAIN + 1]; /* of the plugins that were there; ended by NULL */
    size_t n_names;
};

static bool lookup_visit(void *context, const char *path)
{
    struct lookup *lookup = context;
    struct object *object = object_at(path, lookup->kind, lookup->host);
    if (!object)
        return true;
    if (!object->first) {
        dpb_text_add(&lookup->tried, "\n  %s: %s", path, reason_of(object));
        return true;
    }
    for (const struct dpb_plugin *p = object->first; p; p = p->next)
        if (lookup->n_names < DPB_PLUGIN_CHAIN)
            lookup->names[lookup->n_names++] = p->name;
    if (!object->first->next && !is_file_name_of(path, lookup->kind, object->first->name)) {
        dpb_text_add(&lookup->tried, "\n  %s: name is '%s', by its file name it should be another",
                     path, object->first->name);
        return true;
    }
    lookup->found = find_in(object, lookup->name);
    return !lookup->found;
}

/* The file that should hold the plugin. A file that is there but is refused ends the search:
 * another one further down the path would be a silent replacement. */
static dpb_status lookup_own_file(struct lookup *lookup, const struct search *search)
{
    const char *kind = dpb_plugin_kind_name[lookup->kind];
    for (size_t i = 0; i < search->n && !lookup->found; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s_%s.so", search->directories[i], kind, lookup->name);
        if (access(path, F_OK) != 0) {
            dpb_text_add(&lookup->tried, "\n  %s: %s", path, strerror(errno));
            continue;
        }
        struct object *object = object_at(path, lookup->kind, lookup->host);
        DPB_TRY(dpb_allocated(object));
        if (!object->first)
            return dpb_fail(object->status, "%s%s '%s' cannot be used: %s: %s", lookup->at, kind,
                            lookup->name, path, reason_of(object));
        lookup->found = find_in(object, lookup->name);
        /* A file of several plugins has a name of its own. */
        if (!lookup->found && !object->first->next)
            return dpb_fail(DPB_UNSUPPORTED,
                            "%s%s '%s' cannot be used: %s: name is '%s', by its file name it "
                            "should be '%s'",
                            lookup->at, kind, lookup->name, path, object->first->name,
                            lookup->name);
    }
    return DPB_OK;
}

static dpb_status lookup_fail(const struct lookup *lookup)
{
    const char *kind = dpb_plugin_kind_name[lookup->kind];
    const char *reason =
        dpb_plugin_name_valid(lookup->name) ? why_not_built(lookup->kind, lookup->name) : NULL;
    if (reason)
        return dpb_fail(DPB_USAGE, "%s%s '%s' was not built: %s; tried:%s", lookup->at, kind,
                        lookup->name, reason, lookup->tried.text);
    if (access("/proc/self/exe", F_OK) != 0)
        return dpb_fail(DPB_UNSUPPORTED,
                        "%s%s '%s' is not found: /proc is not mounted, by which dpbench finds its "
                        "own directory and starts its ranks",
                        lookup->at, kind, lookup->name);
    const char *near = dpb_did_you_mean(lookup->name, lookup->names);
    if (!dpb_plugin_name_valid(lookup->name))
        return dpb_fail(DPB_USAGE, "%s'%s' is no name of a %s plugin: names match [a-z0-9_]+%s%s%s",
                        lookup->at, lookup->name, kind, near ? "; did you mean '" : "",
                        near ? near : "", near ? "'?" : "");
    return dpb_fail(DPB_USAGE, "%sunknown %s '%s'; %s%s%s; tried:%s", lookup->at, kind,
                    lookup->name,
                    near ? "did you mean '" : "`dpbench plugins` lists those there are",
                    near ? near : "", near ? "'?" : "", lookup->tried.text);
}

dpb_status dpb_plugin_load(dpb_plugin_kind kind, const char *name, const char *where,
                           const struct dpb_host *host, const struct dpb_plugin **plugin)
{
    struct search search;
    struct lookup *lookup = calloc(1, sizeof *lookup);
    DPB_TRY(dpb_allocated(lookup));
    *lookup = (struct lookup){.kind = kind, .name = name, .host = host};
    lookup->tried = dpb_text_in(lookup->array, sizeof lookup->array);
    if (where)
        snprintf(lookup->at, sizeof lookup->at, "%s: ", where);
    pthread_mutex_lock(&lock);
    dpb_status status = search_create(&search);
    if (status == DPB_OK && dpb_plugin_name_valid(name))
        status = lookup_own_file(lookup, &search);
    if (status == DPB_OK && !lookup->found)
        search_visit(&search, kind, lookup_visit, lookup);
    pthread_mutex_unlock(&lock);
    if (status == DPB_OK && !lookup->found)
        status = lookup_fail(lookup);
    if (status == DPB_OK)
        *plugin = lookup->found;
    search_destroy(&search);
    free(lookup);
    return status;
}

static bool holds(const struct object *object, const struct dpb_plugin *plugin)
{
    const struct dpb_plugin *p = object->first;
    while (p && p != plugin)
        p = p->next;
    return p != NULL;
}

const char *dpb_plugin_path(const struct dpb_plugin *plugin)
{
    pthread_mutex_lock(&lock);
    const struct object *object = objects;
    while (object && !holds(object, plugin))
        object = object->next;
    pthread_mutex_unlock(&lock);
    return object ? object->path : NULL;
}

/* An installation may consist of links. All that a build makes is its own. */
static bool is_own_file(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    char directory[PATH_MAX], file[2 * PATH_MAX];
    for (size_t i = 0; slash && own_place(i, directory); i++) {
        snprintf(file, sizeof file, "%s%s", directory, slash);
        if (same_place(file, path))
            return true;
    }
    return slash && dpb_own_directory(directory, sizeof directory) &&
           dpb_begins_with(path, directory) && path[strlen(directory)] == '/';
}

bool dpb_plugin_is_own(const struct dpb_plugin *plugin)
{
    return is_own_file(dpb_plugin_path(plugin));
}

/* ---- all of them --------------------------------------------------------------------------- */

struct listing {
    dpb_plugin_kind kind;
    const char *name; /* of the files; NULL: all */
    const struct dpb_host *host;
    struct dpb_plugin_row *rows;
    size_t n, capacity;
    bool out_of_memory;
};

/* The earlier row whose plugin has this name: the one that dpb_plugin_load would take. */
static const struct dpb_plugin_row *listing_find(const struct listing *listing, const char *name)
{
    for (size_t i = 0; i < listing->n; i++) {
        const struct dpb_plugin_row *row = &listing->rows[i];
        if (row->plugin && row->kind == listing->kind && strcmp(row->plugin->name, name) == 0)
            return row;
    }
    return NULL;
}

static bool listing_add(struct listing *listing, const struct dpb_plugin_row *row)
{
    if (listing->n == listing->capacity) {
        size_t capacity = listing->capacity != 0 ? 2 * listing->capacity : 32;
        void *rows = realloc(listing->rows, capacity * sizeof *listing->rows);
        if (!rows) {
            listing->out_of_memory = true;
            return false;
        }
        listing->rows = rows;
        listing->capacity = capacity;
    }
    listing->rows[listing->n++] = *row;
    return true;
}

static bool listing_visit(void *context, const char *path)
{
    struct listing *listing = context;
    if (listing->name && !is_file_name_of(path, listing->kind, listing->name))
        return true;
    struct object *object = object_at(path, listing->kind, listing->host);
    if (!object) {
        listing->out_of_memory = true;
        return false;
    }
    struct dpb_plugin_row row = {.kind = listing->kind, .path = object->path};
    if (!object->first) {
        row.reason = reason_of(object);
        return listing_add(listing, &row);
    }
    if (!object->first->next && !is_file_name_of(path, listing->kind, object->first->name)) {
        row.reason =
            keep_reason(object, "not used: name is '%s', by its file name it should be another",
                        object->first->name);
        return listing_add(listing, &row);
    }
    for (const struct dpb_plugin *p = object->first; p; p = p->next) {
        const struct dpb_plugin_row *earlier = listing_find(listing, p->name);
        row.plugin = !earlier ? p : NULL;
        row.reason = !earlier
                         ? NULL
                         : keep_reason(object, "not used: it is found first in %s", earlier->path);
        if (!listing_add(listing, &row))
            return false;
    }
    return true;
}

static const char *row_name(const struct dpb_plugin_row *row)
{
    const char *slash = strrchr(row->path, '/');
    return row->plugin ? row->plugin->name : slash + 2 + strlen(dpb_plugin_kind_name[row->kind]);
}

static int compare_rows(const void *a, const void *b)
{
    const struct dpb_plugin_row *x = a, *y = b;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    return strcmp(row_name(x), row_name(y));
}

dpb_status dpb_plugin_list(const struct dpb_host *host, uint32_t kinds, const char *name,
                           struct dpb_plugin_row **rows, size_t *n_rows)
{
    struct search search;
    struct listing listing = {.host = host, .name = name};
    pthread_mutex_lock(&lock);
    dpb_status status = search_create(&search);
    tries = true;
    for (uint32_t kind = 0; status == DPB_OK && kind < DPB_PLUGIN_KINDS && !listing.out_of_memory;
         kind++) {
        listing.kind = (dpb_plugin_kind)kind;
        if (kinds & 1u << kind)
            search_visit(&search, listing.kind, listing_visit, &listing);
    }
    tries = false;
    pthread_mutex_unlock(&lock);
    search_destroy(&search);
    DPB_THEN(status, dpb_allocated(!listing.out_of_memory));
    if (status != DPB_OK) {
        free(listing.rows);
        return status;
    }
    if (listing.n > 0)
        qsort(listing.rows, listing.n, sizeof *listing.rows, compare_rows);
    *rows = listing.rows;
    *n_rows = listing.n;
    return DPB_OK;
}
