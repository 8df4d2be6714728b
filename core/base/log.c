/*
 * log.c - the first error, the warnings, and lines to stderr. An error's path uses static memory
 * alone, so it works when memory is exhausted. Each message of up to PIPE_BUF bytes is one
 * write(2), so lines of several processes do not mix.
 */
#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"

enum {
    TEXT_BYTES = DPB_LOG_TEXT,
    PREFIX_BYTES = 128,
    OUTPUT_BYTES = 2 * TEXT_BYTES,
    MAX_WARNINGS = 256
};

struct warning {
    char *code, *text;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all that follows but the level */
static atomic_int level_limit = DPB_LOG_INFO;
static char line_prefix[PREFIX_BYTES];
static char output[OUTPUT_BYTES];
static struct dpb_log_hooks log_hooks;
static dpb_status first_status;
static char first_text[TEXT_BYTES];
static struct warning warning_list[MAX_WARNINGS];
static size_t n_warnings;

const char *dpb_status_name(dpb_status status)
{
    static const char *const name[] = {
#define STATUS_NAME(name, exit_code, text) #name,
        DPB_STATUS_LIST(STATUS_NAME)
#undef STATUS_NAME
    };
    return (size_t)status < sizeof name / sizeof *name ? name[status] : "UNKNOWN";
}

int dpb_status_exit_code(dpb_status status)
{
    static const int code[] = {
#define STATUS_CODE(name, exit_code, text) exit_code,
        DPB_STATUS_LIST(STATUS_CODE)
#undef STATUS_CODE
    };
    return (size_t)status < sizeof code / sizeof *code ? code[status] : 1;
}

static size_t append(size_t used, const char *text, size_t length)
{
    size_t room = OUTPUT_BYTES - 1 - used; /* the last byte is the final newline's */
    if (length > room)
        length = room;
    memcpy(output + used, text, length);
    return used + length;
}

size_t dpb_escape(const char *text, size_t length, char *to, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < length && used + 5 <= size; i++) {
        const unsigned char c = (unsigned char)text[i];
        const bool wide = c == 0xc2 && i + 1 < length && (unsigned char)text[i + 1] < 0xa0;
        if ((c >= ' ' || c == '\t') && c != 0x7f && !wide) {
            to[used++] = text[i];
            continue;
        }
        i += wide;
        used += (size_t)snprintf(to + used, 5, "\\x%02x", (unsigned char)text[i]);
    }
    to[used] = '\0';
    return used;
}

bool dpb_log_can_write(int patience_ms)
{
    struct pollfd stream = {.fd = STDERR_FILENO, .events = POLLOUT};
    return poll(&stream, 1, patience_ms) != 0;
}

/* A reader that does not read loses messages: no process may wait for it, a launcher least of all.
 * After one wait in vain messages are lost at once, until there is room again. */
static bool can_write(void)
{
    enum { PATIENCE_MS = 1000 };
    static int patience_ms = PATIENCE_MS;
    bool can = dpb_log_can_write(patience_ms);
    patience_ms = can ? PATIENCE_MS : 0;
    return can;
}

/* Each line of `text` gets the prefix; the first one also `kind`. The lock is held. */
static void write_text(const char *kind, const char *text)
{
    size_t used = append(0, line_prefix, strlen(line_prefix));
    used = append(used, kind, strlen(kind));
    for (;;) {
        size_t length = strcspn(text, "\n");
        used += dpb_escape(text, length, output + used, OUTPUT_BYTES - used);
        if (text[length] == '\0' || text[length + 1] == '\0')
            break;
        text += length + 1;
        used = append(used, "\n", 1);
        used = append(used, line_prefix, strlen(line_prefix));
    }
    output[used++] = '\n';
    for (size_t done = 0; done < used && can_write();) {
        size_t most = used - done < PIPE_BUF ? used - done : PIPE_BUF; /* a pipe takes so much */
        ssize_t n = write(STDERR_FILENO, output + done, most);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break; /* stderr is gone: the message is lost */
        done += (size_t)n;
    }
}

/* A library's message, too, says that too many files are open; none names the limit. */
static void name_limit(char *text)
{
    static const struct {
        int error;
        unsigned resource;
        const char *word, *format;
    } rows[] = {
        {EMFILE, RLIMIT_NOFILE, "", " (this process may have %llu open files: raise `ulimit -n`)"},
        {EFBIG, RLIMIT_FSIZE, "", " (a file may have %llu bytes: raise `ulimit -f`)"},
        {EAGAIN, RLIMIT_NPROC, "cannot start",
         " (processes and threads have a limit: raise `ulimit -u`, or the control group's "
         "pids.max)"}};
    struct rlimit limit;
    const size_t length = strlen(text);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strstr(text, strerror(rows[i].error)) && strstr(text, rows[i].word) &&
            getrlimit(rows[i].resource, &limit) == 0)
            snprintf(text + length, TEXT_BYTES - length, rows[i].format,
                     (unsigned long long)limit.rlim_cur);
}

/* This thread's. */
static _Thread_local char fail_place[PREFIX_BYTES];

void dpb_fail_at(const char *place)
{
    snprintf(fail_place, sizeof fail_place, "%s", place ? place : "");
}

static _Thread_local bool fail_muted;

void dpb_fail_mute(bool yes)
{
    fail_muted = yes;
}

dpb_status dpb_failv(dpb_status status, const char *format, va_list arguments)
{
    assert(status != DPB_OK);
    if (fail_muted)
        return status;
    int saved_errno = errno;
    char text[TEXT_BYTES];
    const int used = fail_place[0] != '\0' ? snprintf(text, sizeof text, "%s: ", fail_place) : 0;
    dpb_text_format(text + used, sizeof text - (size_t)used, format, arguments);
    name_limit(text);

    pthread_mutex_lock(&lock);
    bool first = first_status == DPB_OK;
    struct dpb_log_hooks hooks = log_hooks;
    if (first) {
        first_status = status;
        memcpy(first_text, text, sizeof first_text);
        if (!hooks.silent)
            write_text("error: ", text);
    } else if (atomic_load(&level_limit) >= DPB_LOG_DEBUG) {
        write_text("debug: later error: ", text);
    }
    pthread_mutex_unlock(&lock);

    if (first && hooks.error)
        hooks.error(hooks.context, status, text);
    errno = saved_errno;
    return status;
}

dpb_status dpb_fail(dpb_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    dpb_failv(status, format, arguments);
    va_end(arguments);
    return status;
}

const char *dpb_first_error(dpb_status *status)
{
    pthread_mutex_lock(&lock);
    if (status)
        *status = first_status;
    pthread_mutex_unlock(&lock);
    return first_text;
}

void dpb_first_error_clear(void)
{
    pthread_mutex_lock(&lock);
    first_status = DPB_OK;
    first_text[0] = '\0';
    pthread_mutex_unlock(&lock);
}

/* Whether the pair is new. Keeps the pair while there is room; the last entry says that more came.
 * The lock is held. */
static bool warning_keep(const char *code, const char *text)
{
    for (size_t i = 0; i < n_warnings; i++)
        if (strcmp(warning_list[i].code, code) == 0 && strcmp(warning_list[i].text, text) == 0)
            return false;
    if (n_warnings == MAX_WARNINGS)
        return true;
    if (n_warnings == MAX_WARNINGS - 1) {
        code = "too_many_warnings";
        text = "further warnings were printed but not kept";
    }
    struct warning warning = {strdup(code), strdup(text)};
    if (!warning.code || !warning.text) {
        free(warning.code);
        free(warning.text);
        return true;
    }
    warning_list[n_warnings++] = warning;
    return true;
}

static struct {
    char code[64];
    size_t n;
} counted[MAX_WARNINGS];
static bool is_once;

/* Under the lock: the place of the code's count; MAX_WARNINGS: there is no room, or nothing is
 * counted. */
static size_t place_of(const char *code)
{
    size_t i = 0;
    while (is_once && i < MAX_WARNINGS && counted[i].n > 0 &&
           strncmp(counted[i].code, code, sizeof counted[i].code - 1) != 0)
        i++;
    if (!is_once || i == MAX_WARNINGS)
        return MAX_WARNINGS;
    snprintf(counted[i].code, sizeof counted[i].code, "%.*s", (int)sizeof counted[i].code - 1,
             code);
    return i;
}

/* Under the lock: whether a warning of this code is to be printed. */
static bool count_code(const char *code)
{
    const size_t i = place_of(code);
    return i == MAX_WARNINGS || counted[i].n++ == 0;
}

bool dpb_warned_at(size_t i, const char **code, size_t *n)
{
    pthread_mutex_lock(&lock);
    const bool there = i < MAX_WARNINGS && counted[i].n > 0;
    if (there) {
        *code = counted[i].code;
        *n = counted[i].n;
    }
    pthread_mutex_unlock(&lock);
    return there;
}

void dpb_warned_set(const char *code, size_t n)
{
    pthread_mutex_lock(&lock);
    const size_t i = place_of(code);
    if (i < MAX_WARNINGS)
        counted[i].n = n;
    pthread_mutex_unlock(&lock);
}

bool dpb_warning_is_new(const char *code)
{
    pthread_mutex_lock(&lock);
    bool is_new = count_code(code);
    pthread_mutex_unlock(&lock);
    return is_new;
}

void dpb_warnings_once(bool yes)
{
    for (size_t i = 0; !yes && i < MAX_WARNINGS && counted[i].n > 0; i++)
        if (counted[i].n > 1)
            dpb_log(DPB_LOG_WARNING, "%s: %zu times in all; warnings[] of each run have the others",
                    counted[i].code, counted[i].n);
    pthread_mutex_lock(&lock);
    memset(counted, 0, sizeof counted);
    is_once = yes;
    pthread_mutex_unlock(&lock);
}

void dpb_warn(const char *code, const char *format, ...)
{
    int saved_errno = errno;
    char text[TEXT_BYTES];
    DPB_PRINT_ARGUMENTS(text, sizeof text, format);

    pthread_mutex_lock(&lock);
    bool fresh = warning_keep(code, text);
    struct dpb_log_hooks hooks = log_hooks;
    bool printed = fresh && !hooks.silent && atomic_load(&level_limit) >= DPB_LOG_WARNING;
    if (printed && count_code(code))
        write_text("warning: ", text);
    pthread_mutex_unlock(&lock);

    if (fresh && hooks.warning)
        hooks.warning(hooks.context, code, text);
    errno = saved_errno;
}

bool dpb_warning_at(size_t i, const char **code, const char **text)
{
    pthread_mutex_lock(&lock);
    bool there = i < n_warnings;
    if (there) {
        *code = warning_list[i].code;
        *text = warning_list[i].text;
    }
    pthread_mutex_unlock(&lock);
    return there;
}

void dpb_warnings_clear(void)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < n_warnings; i++) {
        free(warning_list[i].code);
        free(warning_list[i].text);
    }
    n_warnings = 0;
    pthread_mutex_unlock(&lock);
}

void dpb_log(dpb_log_level level, const char *format, ...)
{
    static const char *const kind[] = {"error: ", "warning: ", "", "debug: "};
    if ((int)level > atomic_load_explicit(&level_limit, memory_order_relaxed))
        return;
    int saved_errno = errno;
    char text[TEXT_BYTES];
    DPB_PRINT_ARGUMENTS(text, sizeof text, format);
    pthread_mutex_lock(&lock);
    write_text((size_t)level < sizeof kind / sizeof *kind ? kind[level] : "", text);
    pthread_mutex_unlock(&lock);
    errno = saved_errno;
}

void dpb_log_set_level(dpb_log_level level)
{
    atomic_store(&level_limit, (int)level);
}

void dpb_log_set_prefix(const char *prefix)
{
    pthread_mutex_lock(&lock);
    snprintf(line_prefix, sizeof line_prefix, "%s", prefix ? prefix : "");
    pthread_mutex_unlock(&lock);
}

void dpb_log_set_hooks(const struct dpb_log_hooks *hooks)
{
    static const struct dpb_log_hooks none;
    pthread_mutex_lock(&lock);
    log_hooks = hooks ? *hooks : none;
    pthread_mutex_unlock(&lock);
}

int64_t dpb_clock_ns(clockid_t clock)
{
    struct timespec now = {0};
    (void)clock_gettime(clock, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

int64_t dpb_now_ns(void)
{
    return dpb_clock_ns(CLOCK_MONOTONIC);
}
