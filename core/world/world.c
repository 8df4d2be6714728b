/*
 * world.c - the job as a rank sees it: taking over what the launcher left, the status page, and
 * what is said of other ranks in messages.
 */
#include "world/world.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "world/futex.h"

struct dpb_world dpb_world;

/* Readers may look at any moment, and several threads of a rank may note: whole words, relaxed. */
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

void dpb_world_note(const char *phase, uint64_t bucket, uint32_t peer)
{
    if (dpb_world.board == NULL)
        return;
    struct dpb_status_page *page = dpb_board_page(dpb_world.board, dpb_world.rank);
    phase_store(page, phase);
    __atomic_store_n(&page->bucket, bucket, __ATOMIC_RELAXED);
    __atomic_store_n(&page->peer, peer, __ATOMIC_RELAXED);
    __atomic_store_n(&page->since_ns, dpb_now_ns(), __ATOMIC_RELAXED);
}

/* The state letter of /proc/PID/stat, '\0' when there is no such process. */
static char process_state(int32_t pid)
{
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return '\0';
    const char *name_end = fgets(line, sizeof line, file) != NULL ? strrchr(line, ')') : NULL;
    fclose(file);
    return name_end != NULL && name_end[1] == ' ' ? name_end[2] : '\0';
}

void dpb_peer_describe(uint32_t rank, char *text, size_t size)
{
    struct dpb_board *board = dpb_world.board;
    if (board == NULL || rank >= dpb_board_ranks(board)) {
        snprintf(text, size, "rank %u", rank);
        return;
    }
    struct dpb_status_page *page = dpb_board_page(board, rank);
    int32_t pid = __atomic_load_n(&page->pid, __ATOMIC_RELAXED);
    if (pid == 0) {
        snprintf(text, size, "rank %u has not started yet", rank);
        return;
    }
    char state = process_state(pid);
    if (state == '\0' || state == 'Z' || state == 'X') {
        snprintf(text, size, "rank %u (pid %d) has ended", rank, pid);
        return;
    }
    int64_t since = __atomic_load_n(&page->since_ns, __ATOMIC_RELAXED);
    snprintf(text, size, "rank %u (pid %d) is in phase '%.*s' of step %llu for %.1f s%s", rank, pid,
             (int)sizeof page->phase - 1, page->phase[0] != '\0' ? page->phase : "start",
             (unsigned long long)__atomic_load_n(&page->step, __ATOMIC_RELAXED),
             (double)(dpb_now_ns() - since) * 1e-9,
             state == 'T' || state == 't' ? " and is stopped (SIGSTOP)" : "");
}
