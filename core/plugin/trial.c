/* trial.c - see trial.h. */
#include "plugin/trial.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/deadline.h"
#include "base/log.h"

/* A driver without its daemon starts one GPU after the other. */
#define LOAD_NS INT64_C(5000000000)
#define DRIVER_NS INT64_C(30000000000)
#define END_NS INT64_C(1000000000)

/* ---- the file ------------------------------------------------------------------------------ */

/* The end of the last segment; 0: this is no ELF file of 64 bits. */
static uint64_t end_of_segments(int fd)
{
    Elf64_Ehdr head;
    uint64_t end = 0;
    if (pread(fd, &head, sizeof head, 0) != (ssize_t)sizeof head ||
        memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_phentsize != sizeof(Elf64_Phdr))
        return 0;
    end = head.e_phoff + (uint64_t)head.e_phnum * sizeof(Elf64_Phdr);
    for (uint64_t i = 0; i < head.e_phnum; i++) {
        Elf64_Phdr part;
        if (pread(fd, &part, sizeof part, (off_t)(head.e_phoff + i * sizeof part)) !=
            (ssize_t)sizeof part)
            return end;
        if (part.p_type == PT_LOAD && part.p_offset + part.p_filesz > end)
            end = part.p_offset + part.p_filesz;
    }
    return end;
}

bool dpb_trial_look(const char *path, char *reason, size_t size)
{
    struct stat info;
    reason[0] = '\0';
    /* Without waiting for the other end of a pipe. */
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0)
        snprintf(reason, size, "%s", strerror(errno));
    else if (!S_ISREG(info.st_mode))
        snprintf(reason, size, "it is no regular file");
    else if (end_of_segments(fd) > (uint64_t)info.st_size)
        snprintf(reason, size,
                 "it is truncated: its segments need %" PRIu64 " bytes, and it has %" PRIu64,
                 end_of_segments(fd), (uint64_t)info.st_size);
    if (fd >= 0)
        close(fd);
    return reason[0] == '\0';
}

/* ---- questions ----------------------------------------------------------------------------- */

/* In the child. */
static void answer_to(dpb_trial_work *work, const void *context, int to)
{
    _Alignas(16) char answer[DPB_TRIAL_BYTES] = "";
    const int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO && null_fd >= 0; fd++)
        dup2(null_fd, fd);
    work(context, answer);
    (void)!write(to, answer, sizeof answer);
    _exit(0);
}

/* A child that a driver holds in the kernel ends later than its parent waits. */
static int end_child(pid_t child)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    const struct dpb_deadline deadline = dpb_deadline_in(END_NS);
    int status = 0;
    pid_t ended;
    kill(child, SIGKILL);
    while ((ended = waitpid(child, &status, WNOHANG)) == 0 && !dpb_deadline_passed(deadline))
        nanosleep(&pause, NULL);
    return status;
}

static void judge(int status, const char *what, char *reason)
{
    if (WIFSIGNALED(status))
        snprintf(reason, DPB_REASON_BYTES, "%s ends the process: signal %d (%s)", what,
                 WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(reason, DPB_REASON_BYTES, "%s ends the process: exit status %d", what,
                 WEXITSTATUS(status));
}

bool dpb_trial_ask(const struct dpb_trial *trial, void *answer, size_t bytes, char *reason)
{
    const struct dpb_deadline deadline = dpb_deadline_in(trial->limit_ns);
    char got[DPB_TRIAL_BYTES];
    int ends[2], status = 0;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        snprintf(reason, DPB_REASON_BYTES, "%s needs a pipe: %s", trial->what, strerror(errno));
        return false;
    }
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0)
        answer_to(trial->work, trial->context, ends[1]);
    close(ends[1]);
    struct pollfd said = {.fd = ends[0], .events = POLLIN};
    while (child > 0 && poll(&said, 1, dpb_deadline_look_ms(deadline)) <= 0 &&
           !dpb_deadline_passed(deadline))
        ;
    const bool told =
        said.revents & POLLIN && read(ends[0], got, sizeof got) == (ssize_t)sizeof got;
    close(ends[0]);
    if (told && bytes > 0)
        memcpy(answer, got, bytes);
    if (child < 0)
        snprintf(reason, DPB_REASON_BYTES, "%s needs a process: %s", trial->what, strerror(errno));
    else if (!told && said.revents == 0)
        snprintf(reason, DPB_REASON_BYTES, "%s takes more than %.3g s", trial->what,
                 (double)trial->limit_ns * 1e-9);
    else if (!told && waitpid(child, &status, 0) == child)
        judge(status, trial->what, reason);
    if (told || (child > 0 && said.revents == 0))
        (void)end_child(child);
    return told;
}

/* ---- loading ------------------------------------------------------------------------------- */

struct loading {
    const char *path;
    const struct dpb_host *host;
};

static void load(const void *context, void *answer)
{
    const struct loading *loading = context;
    const struct dpb_plugin *(*entry)(const struct dpb_host *) = NULL;
    void *handle = dlopen(loading->path, RTLD_NOW | RTLD_LOCAL);
    (void)answer;
    if (handle)
        *(void **)&entry = dlsym(handle, "dpb_plugin_entry");
    if (entry)
        (void)entry(loading->host);
}

bool dpb_trial_load(const char *path, const struct dpb_host *host, char *reason)
{
    const struct loading loading = {path, host};
    const struct dpb_trial trial = {"loading it", LOAD_NS, load, &loading};
    return dpb_trial_ask(&trial, NULL, 0, reason);
}

/* ---- what a machine has -------------------------------------------------------------------- */

static void find_missing(const void *context, void *answer)
{
    const struct dpb_plugin *plugin = context;
    const char *missing = plugin->missing();
    snprintf(answer, DPB_REASON_BYTES, "%s", missing ? missing : "");
}

const char *dpb_trial_missing(const struct dpb_plugin *plugin, char *text)
{
    const struct dpb_trial trial = {"asking for its driver", DRIVER_NS, find_missing, plugin};
    text[0] = '\0';
    if (plugin->missing)
        (void)dpb_trial_ask(&trial, text, DPB_REASON_BYTES, text);
    return text[0] != '\0' ? text : NULL;
}

struct sharing_question {
    const struct dpb_device_ops *ops;
    const void *options;
};

struct sharing_answer {
    dpb_status status;
    struct dpb_sharing sharing;
    char message[DPB_REASON_BYTES];
};

static void find_sharing(const void *context, void *answer)
{
    const struct sharing_question *question = context;
    struct sharing_answer *found = answer;
    dpb_first_error_clear();
    found->status = question->ops->sharing(question->options, 0, &found->sharing);
    snprintf(found->message, sizeof found->message, "%s", dpb_first_error(NULL));
}

dpb_status dpb_trial_sharing(const struct dpb_plugin *device, const void *options,
                             struct dpb_sharing *sharing)
{
    const struct sharing_question question = {device->ops, options};
    const struct dpb_trial trial = {"asking its driver", DRIVER_NS, find_sharing, &question};
    struct sharing_answer answer = {.status = DPB_OK};
    if (question.ops->sharing && !dpb_trial_ask(&trial, &answer, sizeof answer, answer.message))
        answer.status = DPB_UNSUPPORTED;
    *sharing = answer.sharing;
    return answer.status == DPB_OK ? DPB_OK : dpb_fail(answer.status, "%s", answer.message);
}
