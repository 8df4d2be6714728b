/* command.c - see command.h. */
#include "lib/command.h"

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/says.h"
#include "lib/test.h"

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    perror(what);
    abort();
}

double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

const char *build_directory(void)
{
    const char *build = getenv("DPB_BUILD");
    return build && *build ? build : "build";
}

/* ---- processes ----------------------------------------------------------------------------- */

void command_start(struct started *started, const char *const *arguments,
                   const char *const *environment)
{
    int out[2], err[2];
    must(pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0, "pipe");
    started->began_s = now_s();
    started->pid = fork();
    must(started->pid >= 0, "fork");
    if (started->pid == 0) {
        setpgid(0, 0);
        dup2(open("/dev/null", O_RDONLY), 0);
        dup2(out[1], 1);
        dup2(err[1], 2);
        for (; environment && *environment; environment++)
            putenv((char *)*environment);
        execv(arguments[0], (char *const *)arguments);
        perror(arguments[0]);
        _exit(127);
    }
    setpgid(started->pid, started->pid);
    close(out[1]);
    close(err[1]);
    started->out = out[0];
    started->err = err[0];
}

struct text {
    char *bytes;
    size_t n;
};

/* False at the end of the stream. */
static bool read_more(int fd, struct text *text)
{
    char buffer[4096];
    ssize_t n = read(fd, buffer, sizeof buffer);
    if (n <= 0)
        return false;
    text->bytes = realloc(text->bytes, text->n + (size_t)n + 1);
    must(text->bytes != NULL, "realloc");
    memcpy(text->bytes + text->n, buffer, (size_t)n);
    text->n += (size_t)n;
    text->bytes[text->n] = '\0';
    return true;
}

/* A deadline is for a machine that has cores for the command. Where others take turns with it, it
 * is as many times longer. */
static double turns(void)
{
    double load;
    return getloadavg(&load, 1) == 1 ? fmax(load / (double)sysconf(_SC_NPROCESSORS_ONLN), 1.0)
                                     : 1.0;
}

/* Until both streams end, or the deadline. */
static bool collect(struct started *started, struct text *out, struct text *err, double deadline_s)
{
    struct pollfd fds[2] = {{started->out, POLLIN, 0}, {started->err, POLLIN, 0}};
    struct text *const texts[2] = {out, err};
    while (fds[0].fd >= 0 || fds[1].fd >= 0) {
        double left_s = started->began_s + deadline_s * turns() - now_s();
        if (left_s <= 0)
            return false;
        if (poll(fds, 2, (int)(left_s * 1e3) + 1) == 0)
            continue;
        for (int i = 0; i < 2; i++)
            if (fds[i].fd >= 0 && fds[i].revents && !read_more(fds[i].fd, texts[i]))
                fds[i].fd = -1;
    }
    return true;
}

void command_finish(struct started *started, struct command *command, double deadline_s)
{
    struct text out = {calloc(1, 1), 0}, err = {calloc(1, 1), 0};
    int status;
    memset(command, 0, sizeof *command);
    command->late = !collect(started, &out, &err, deadline_s);
    if (command->late)
        kill(-started->pid, SIGKILL);
    must(waitpid(started->pid, &status, 0) == started->pid, "waitpid");
    command->seconds = now_s() - started->began_s;
    close(started->out);
    close(started->err);
    command->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    command->signal_number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    command->out = own_memory(out.bytes, free);
    command->err = own_memory(err.bytes, free);
    command->json = own_json(json_loads(command->out, 0, NULL));
}

void command_run(struct command *command, double deadline_s, const char *const *arguments,
                 const char *const *environment)
{
    struct started started;
    command_start(&started, arguments, environment);
    command_finish(&started, command, deadline_s);
}

static bool is_pending(pid_t pid, int number)
{
    char path[64], line[256];
    unsigned long long pending = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file) && sscanf(line, "ShdPnd: %llx", &pending) != 1)
        ;
    if (file)
        fclose(file);
    return (pending >> (number - 1) & 1) != 0;
}

void signal_process(pid_t pid, int number)
{
    enum { PATIENCE_S = 20 };
    const double until_s = now_s() + PATIENCE_S;
    assert_int_equal(kill(pid, number), 0);
    for (; is_pending(pid, number); usleep(1000))
        if (now_s() > until_s)
            fail_msg("process %d does not take signal %d", (int)pid, number);
}

enum { LINE_BYTES = 8192 };

static void format_line(char line[LINE_BYTES], const char *format, va_list list)
{
    if (vsnprintf(line, LINE_BYTES, format, list) >= LINE_BYTES)
        fail_msg("a line of more than %d bytes: %s", LINE_BYTES - 1, line);
}

/* Declares `line`, of the function's last named parameter and those behind it. */
#define FORMAT_LINE(line, format)    \
    char line[LINE_BYTES];           \
    va_list list;                    \
    va_start(list, format);          \
    format_line(line, format, list); \
    va_end(list)

/* The first word is `program`, or that of the line where it is NULL. */
static void start_line(struct started *started, const char *const *environment, const char *program,
                       const char *line)
{
    enum { MOST = 128 };
    char words[LINE_BYTES];
    const char *arguments[MOST + 1] = {program};
    size_t n = program ? 1 : 0;
    strcpy(words, line);
    for (char *word = strtok(words, " "); word; word = strtok(NULL, " ")) {
        if (n == MOST)
            fail_msg("more than %d words: %s", MOST, line);
        arguments[n++] = word;
    }
    command_start(started, arguments, environment);
}

static void start_dpbench(struct started *started, const char *const *environment, const char *line)
{
    char program[PATH_MAX];
    snprintf(program, sizeof program, "%s/dpbench", build_directory());
    start_line(started, environment, program, line);
}

void dpbench_start(struct started *started, const char *const *environment, const char *format, ...)
{
    FORMAT_LINE(line, format);
    start_dpbench(started, environment, line);
}

void line_start(struct started *started, const char *const *environment, const char *format, ...)
{
    FORMAT_LINE(line, format);
    start_line(started, environment, NULL, line);
}

/* dpbench with the arguments of a line; `exit_code` -1: with whatever exit code. */
static void run_line(struct command *command, double deadline_s, int exit_code, const char *line)
{
    struct started started;
    start_dpbench(&started, NULL, line);
    command_finish(&started, command, deadline_s);
    if (exit_code >= 0 && command->exit_code != exit_code)
        fail_msg("dpbench %s: exit %d, not %d%s\n%s", line, command->exit_code, exit_code,
                 command->late ? " (late)" : "", command->err);
}

void dpbench(struct command *command, double deadline_s, const char *format, ...)
{
    FORMAT_LINE(line, format);
    run_line(command, deadline_s, -1, line);
}

void dpbench_ends(struct command *command, double deadline_s, int exit_code, const char *format,
                  ...)
{
    FORMAT_LINE(line, format);
    run_line(command, deadline_s, exit_code, line);
}

void dpbench_says(double deadline_s, int exit_code, const char *const *words, const char *format,
                  ...)
{
    struct command command;
    FORMAT_LINE(line, format);
    run_line(&command, deadline_s, exit_code, line);
    expect_words(line, command.err, words);
}

double expect_number(const struct command *command, const char *path)
{
    double value = json_number_at(command->json, path);
    if (isnan(value))
        fail_msg("%s is no number\n%s", path, command->out);
    return value;
}

void command_free(struct command *command)
{
    free_owned(command->json);
    free_owned(command->out);
    free_owned(command->err);
    memset(command, 0, sizeof *command);
}

/* ---- documents ----------------------------------------------------------------------------- */

json_t *json_at(const json_t *document, const char *path)
{
    char copy[256];
    json_t *at = (json_t *)document;
    snprintf(copy, sizeof copy, "%s", path);
    for (char *key = strtok(copy, "."); key && at; key = strtok(NULL, "."))
        at = json_is_array(at) ? json_array_get(at, (size_t)atol(key)) : json_object_get(at, key);
    return at;
}

double json_number_at(const json_t *document, const char *path)
{
    const json_t *value = json_at(document, path);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

const char *json_text_at(const json_t *document, const char *path)
{
    const char *text = json_string_value(json_at(document, path));
    return text ? text : "";
}

/* ---- files --------------------------------------------------------------------------------- */

void temporary_directory(char path[64])
{
    const char *root = getenv("TMPDIR");
    snprintf(path, 64, "%s/dpbench-test-XXXXXX", root && strlen(root) < 40 ? root : "/tmp");
    must(mkdtemp(path) != NULL, path);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info, (void)kind, (void)place;
    return remove(path);
}

void remove_directory(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

char own_directory[64];

int own_directory_setup(void **state)
{
    (void)state;
    temporary_directory(own_directory);
    return 0;
}

int own_directory_teardown(void **state)
{
    (void)state;
    remove_directory(own_directory);
    return 0;
}

void write_file(const char *path, const void *bytes, size_t length)
{
    FILE *file = fopen(path, "wb");
    must(file && fwrite(bytes, 1, length, file) == length && fclose(file) == 0, path);
}

void write_below(const char *root, const char *name, const char *format, ...)
{
    char path[PATH_MAX];
    va_list list;
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    must(file != NULL, path);
    va_start(list, format);
    vfprintf(file, format, list);
    va_end(list);
    must(fclose(file) == 0, path);
}
