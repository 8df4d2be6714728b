/*
 * log.h - messages: errors (written once, kept as the cause), warnings that stay beside the result,
 * and log lines to stderr, each with `[rank host]` where the job has more than one process.
 */
#ifndef DPB_CORE_BASE_LOG_H
#define DPB_CORE_BASE_LOG_H

#include <stdarg.h>

#include "dpbench/host.h"

const char *dpb_status_name(dpb_status status);
int dpb_status_exit_code(dpb_status status);

/* Writes the message of an error where it is detected; returns `status`. The first message of the
 * process is kept (dpb_first_error) and handed to the hook below; later ones are only logged at
 * level DEBUG. Any thread. */
dpb_status dpb_fail(dpb_status status, const char *format, ...) DPB_PRINTF(2, 3);
dpb_status dpb_failv(dpb_status status, const char *format, va_list arguments);
/* The kept message, "" when there is none; and its status (DPB_OK when none). @borrowed. */
const char *dpb_first_error(dpb_status *status);
void dpb_first_error_clear(void); /* between the cells of a sweep, and in tests */

void dpb_warn(const char *code, const char *format, ...) DPB_PRINTF(2, 3);
/* The i-th warning of the process, in order and each (code, text) once; false past the last. */
bool dpb_warning_at(size_t i, const char **code, const char **text);
void dpb_warnings_clear(void);

void dpb_log(dpb_log_level level, const char *format, ...) DPB_PRINTF(2, 3);
void dpb_log_set_level(dpb_log_level level); /* default DPB_LOG_INFO */
/* "[rank host] " before each line; NULL: none. Copied. */
void dpb_log_set_prefix(const char *prefix);
/* Where the first error and each warning go beside stderr (a worker: its status page), and whether
 * errors and warnings are printed here at all (in workers the launcher prints them). */
struct dpb_log_hooks {
    void (*error)(void *context, dpb_status status, const char *text);
    void (*warning)(void *context, const char *code, const char *text);
    void *context;
    bool silent;
};
void dpb_log_set_hooks(const struct dpb_log_hooks *hooks); /* NULL: none. Copied */

int64_t dpb_now_ns(void);      /* CLOCK_MONOTONIC */
void *dpb_alloc(size_t bytes); /* see dpb_host.alloc */
void dpb_release(void *memory, size_t bytes);

#endif
