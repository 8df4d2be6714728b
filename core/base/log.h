/*
 * log.h - errors (written once, kept as the cause), warnings (kept for the result) and log lines to
 * stderr. In a job of several processes each line begins with `[rank host]`.
 */
#ifndef DPB_CORE_BASE_LOG_H
#define DPB_CORE_BASE_LOG_H

#include <stdarg.h>
#include <time.h>

#include "dpbench/host.h"

enum { DPB_LOG_TEXT = 4096 }; /* of a message at most, with its NUL; a longer one ends in "..." */

const char *dpb_status_name(dpb_status status);
int dpb_status_exit_code(dpb_status status);

/* Writes an error's message; the code that detects the error calls it. Returns `status`. The first
 * message of the process is kept (dpb_first_error) and passed to the hook below. Later messages are
 * logged at level DEBUG. Any thread. */
dpb_status dpb_fail(dpb_status status, const char *format, ...) DPB_PRINTF(2, 3);
dpb_status dpb_failv(dpb_status status, const char *format, va_list arguments);
/* DPB_OK if `all` requested memory was allocated, else DPB_NO_MEMORY with its message. */
static inline dpb_status dpb_allocated(bool all)
{
    return all ? DPB_OK : dpb_fail(DPB_NO_MEMORY, "out of memory");
}
/* The kept message and its status; "" and DPB_OK when there is none. @borrowed. */
const char *dpb_first_error(dpb_status *status);
void dpb_first_error_clear(void); /* between the cells of a sweep, and in tests */

void dpb_warn(const char *code, const char *format, ...) DPB_PRINTF(2, 3);
/* The i-th warning of the process in order; equal warnings count once. False past the last. */
bool dpb_warning_at(size_t i, const char **code, const char **text);
void dpb_warnings_clear(void);
/* `yes`: further warnings of a code that was printed before are counted and not printed, between
 * the runs of a sweep. False: prints the counts and resets them. */
void dpb_warnings_once(bool yes);
/* Counts a warning of this code. Returns whether the caller must print the warning. */
bool dpb_warning_is_new(const char *code);

/* The i-th code that was counted, and how often. False past the last. @borrowed. */
bool dpb_warned_at(size_t i, const char **code, size_t *n);
/* Sets the count of a code, as another process has counted. */
void dpb_warned_set(const char *code, size_t n);

void dpb_log(dpb_log_level level, const char *format, ...) DPB_PRINTF(2, 3);
void dpb_log_set_level(dpb_log_level level); /* default DPB_LOG_INFO */
/* "[rank host] " before each line; NULL: none. Copied. */
void dpb_log_set_prefix(const char *prefix);
/* Receives the first error and each warning, beside stderr; a worker's hooks write its status page.
 * `silent`: this process prints no errors and warnings (in workers: the launcher prints them). */
struct dpb_log_hooks {
    void (*error)(void *context, dpb_status status, const char *text);
    void (*warning)(void *context, const char *code, const char *text);
    void *context;
    bool silent;
};
void dpb_log_set_hooks(const struct dpb_log_hooks *hooks); /* NULL: none. Copied */

int64_t dpb_clock_ns(clockid_t clock);
int64_t dpb_now_ns(void);      /* CLOCK_MONOTONIC */
void *dpb_alloc(size_t bytes); /* see dpb_host.alloc */
uint64_t dpb_alloc_held(void); /* bytes allocated and not released */
uint64_t dpb_alloc_most(void); /* the most bytes held since the last call */
/* From now on dpb_alloc refuses to hold more than `bytes`, with message `why` and DPB_UNSUPPORTED.
 * UINT64_MAX: no limit. On one thread, before others allocate. */
void dpb_alloc_limit(uint64_t bytes, const char *why);
void dpb_release(void *memory, size_t bytes);

/* From now on messages of failures on this thread begin with "PLACE: ", the origin of a setting;
 * NULL: none. For errors in a file that a setting names. */
void dpb_fail_at(const char *place);

/* From now on failures on this thread are not written, and none becomes the first error. For a
 * trial: its caller reports what failed. */
void dpb_fail_mute(bool yes);

/* Whether standard error takes up to PIPE_BUF bytes now, or within patience_ms. */
bool dpb_log_can_write(int patience_ms);

/*
 * Writes control characters (tabs apart) as \x1b, since text from files, plugins and peers may
 * target the terminal. The log escapes messages itself, line by line. `size`: of `to`; 4 * length +
 * 5 bytes always suffice. Returns the length of the text in `to`.
 */
size_t dpb_escape(const char *text, size_t length, char *to, size_t size);

#endif
