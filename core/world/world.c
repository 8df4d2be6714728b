/*
 * world.c - the job as a rank sees it: the status page, and other ranks in messages.
 */
#include "world/world.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"
#include "machine/proc.h"

struct dpb_world dpb_world;

bool dpb_world_is_local(uint32_t rank)
{
    return dpb_world.machines[rank] == dpb_world.machines[dpb_world.rank];
}

uint32_t dpb_world_machines(void)
{
    return dpb_world.n_machines;
}

/* Readers may look at any moment: whole words, relaxed. */
typedef uint64_t __attribute__((may_alias)) phase_word;
enum { PHASE_WORDS = sizeof((struct dpb_status_page *)0)->phase / sizeof(phase_word) };
_Static_assert(offsetof(struct dpb_status_page, phase) % sizeof(phase_word) == 0, "phase by words");

static void phase_store(struct dpb_status_page *page, const char *phase)
{
    union {
        char text[sizeof page->phase];
        phase_word words[PHASE_WORDS];
    } copy = {{0}};
    memcpy(copy.text, phase, strnlen(phase, sizeof copy.text - 1));
    for (size_t i = 0; i < PHASE_WORDS; i++)
        __atomic_store_n((phase_word *)(void *)page->phase + i, copy.words[i], __ATOMIC_RELAXED);
}

static void phase_load(const struct dpb_status_page *page, char phase[sizeof page->phase])
{
    phase_word words[PHASE_WORDS] = {0};
    for (size_t i = 0; i < PHASE_WORDS; i++)
        words[i] =
            __atomic_load_n((const phase_word *)(const void *)page->phase + i, __ATOMIC_RELAXED);
    memcpy(phase, words, sizeof words);
}

struct note {
    char phase[sizeof((struct dpb_status_page *)0)->phase];
    uint64_t bucket;
    uint32_t peer;
    int64_t since_ns;
};

static struct {
    pthread_mutex_t lock;
    struct note own, aside; /* last of the rank's own thread, and of the one that notes aside */
    bool shows_aside;
} notes = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local bool notes_aside;

static void show_note(void)
{
    struct dpb_status_page *page = dpb_board_page(dpb_world.board, dpb_world.rank);
    const struct note *note =
        notes.shows_aside && notes.aside.phase[0] != '\0' ? &notes.aside : &notes.own;
    phase_store(page, note->phase);
    __atomic_store_n(&page->bucket, note->bucket, __ATOMIC_RELAXED);
    __atomic_store_n(&page->peer, note->peer, __ATOMIC_RELAXED);
    __atomic_store_n(&page->since_ns, note->since_ns, __ATOMIC_RELAXED);
}

void dpb_world_note(const char *phase, uint64_t bucket, uint32_t peer)
{
    struct note *note = notes_aside ? &notes.aside : &notes.own;
    if (!dpb_world.board)
        return;
    pthread_mutex_lock(&notes.lock);
    *note = (struct note){.bucket = bucket, .peer = peer, .since_ns = dpb_now_ns()};
    memcpy(note->phase, phase, strnlen(phase, sizeof note->phase - 1));
    show_note();
    pthread_mutex_unlock(&notes.lock);
}

void dpb_world_note_aside(void)
{
    notes_aside = true;
}

void dpb_world_show_aside(bool shows)
{
    pthread_mutex_lock(&notes.lock);
    notes.shows_aside = shows;
    if (dpb_world.board)
        show_note();
    pthread_mutex_unlock(&notes.lock);
}

void dpb_world_begin_step(uint64_t step)
{
    __atomic_store_n(&dpb_board_page(dpb_world.board, dpb_world.rank)->step, step,
                     __ATOMIC_RELEASE);
}

uint64_t dpb_world_step(void)
{
    const struct dpb_status_page *page = dpb_board_page(dpb_world.board, dpb_world.rank);
    return __atomic_load_n(&page->step, __ATOMIC_RELAXED);
}

void dpb_world_report(const char *name, const char *format, ...)
{
    char value[sizeof((struct dpb_fact *)NULL)->value];
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(value, sizeof value, format, arguments);
    va_end(arguments);
    if (!dpb_world.board)
        return;
    struct dpb_status_page *page = dpb_board_page(dpb_world.board, dpb_world.rank);
    uint32_t i = 0;
    while (i < page->n_facts && strcmp(page->facts[i].name, name) != 0)
        i++;
    struct dpb_fact *fact = &page->facts[i];
    if (i >= DPB_BOARD_FACTS || n < 0 || (size_t)n >= sizeof value ||
        strlen(name) >= sizeof fact->name) {
        dpb_warn("not_reported", "there is no room for '%s' in this rank's report", name);
        return;
    }
    strcpy(fact->name, name);
    strcpy(fact->value, value);
    if (i == page->n_facts)
        __atomic_store_n(&page->n_facts, i + 1, __ATOMIC_RELEASE); /* last: it is whole */
}

void dpb_peer_describe(uint32_t rank, char *text, size_t size)
{
    struct dpb_board *board = dpb_world.board;
    if (!board || rank >= dpb_board_ranks(board)) {
        snprintf(text, size, "rank %u", rank);
        return;
    }
    struct dpb_status_page *page = dpb_board_page(board, rank);
    int32_t pid = __atomic_load_n(&page->pid, __ATOMIC_RELAXED);
    if (pid == 0) {
        snprintf(text, size, "rank %u has not started yet", rank);
        return;
    }
    struct dpb_proc proc = {0};
    bool here = !dpb_world.parted || dpb_world_is_local(rank);
    if (here && (!dpb_proc_read("", pid, &proc) || proc.state == 'Z' || proc.state == 'X')) {
        snprintf(text, size, "rank %u (pid %d) has ended", rank, pid);
        return;
    }
    int64_t since = __atomic_load_n(&page->since_ns, __ATOMIC_RELAXED);
    snprintf(text, size, "rank %u (pid %d) is in phase '%.*s' of step %llu for %.1f s%s", rank, pid,
             (int)sizeof page->phase - 1, page->phase[0] != '\0' ? page->phase : "start",
             (unsigned long long)__atomic_load_n(&page->step, __ATOMIC_RELAXED),
             (double)(dpb_now_ns() - since) * 1e-9,
             dpb_proc_is_stopped(&proc) ? " and is stopped (SIGSTOP)" : "");
}

static void page_error(void *context, dpb_status status, const char *text)
{
    struct dpb_status_page *page = context;
    snprintf(page->error, sizeof page->error, "%s", text);
    page->status = (uint32_t)status;
    phase_load(page, page->failed.phase);
    page->failed.step = __atomic_load_n(&page->step, __ATOMIC_RELAXED);
    page->failed.bucket = __atomic_load_n(&page->bucket, __ATOMIC_RELAXED);
    __atomic_store_n(&page->failed_ns, dpb_now_ns(), __ATOMIC_RELEASE); /* last: all is there */
}

static void page_warning(void *context, const char *code, const char *text)
{
    struct dpb_status_page *page = context;
    uint32_t i = __atomic_load_n(&page->n_warnings, __ATOMIC_RELAXED);
    if (i < DPB_BOARD_WARNINGS) {
        char *kept = page->warnings[i].text;
        const size_t size = sizeof page->warnings[i].text;
        snprintf(page->warnings[i].code, sizeof page->warnings[i].code, "%s", code);
        if ((size_t)snprintf(kept, size, "%s", text) >= size)
            dpb_text_mark_cut(kept, size);
    }
    __atomic_store_n(&page->n_warnings, i + 1, __ATOMIC_RELEASE);
}

void dpb_world_open_page(void)
{
    struct dpb_status_page *page = dpb_board_page(dpb_world.board, dpb_world.rank);
    page->role = dpb_world.role;
    memcpy(page->host, dpb_world.host, sizeof page->host);
    __atomic_store_n(&page->pid, (int32_t)getpid(), __ATOMIC_RELAXED);
    dpb_world_note("start", UINT64_MAX, UINT32_MAX);
    struct dpb_log_hooks hooks = {
        .error = page_error, .warning = page_warning, .context = page, .silent = true};
    dpb_log_set_hooks(&hooks);
    char prefix[96];
    snprintf(prefix, sizeof prefix, "[%u %s] ", dpb_world.rank, dpb_world.host);
    dpb_log_set_prefix(dpb_world.n_ranks > 1 ? prefix : NULL);
}
