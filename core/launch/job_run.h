/*
 * job_run.h - a running job, private to the launcher: its ranks' processes, and the state of its
 * loop (launch.c). Other files of this directory have the functions.
 */
#ifndef DPB_CORE_LAUNCH_JOB_RUN_H
#define DPB_CORE_LAUNCH_JOB_RUN_H

#include <poll.h>
#include <signal.h>
#include <sys/types.h>

#include "base/deadline.h"
#include "base/signals.h"
#include "launch/job.h"
#include "launch/party.h"
#include "launch/store_server.h"

/* ---- for stall.h ----------------------------------------------------------------------------- */

enum { DPB_STALL_PICTURE_BYTES = 8192, DPB_STALL_SAID = 8 };

/* The launcher's state of this watch, zeroed at the start. */
struct dpb_stall_watch {
    int64_t looked_ns, first_left_ns; /* the first rank that ended as it should; 0: none */
    uint32_t n_said, n_looks;

    char picture[DPB_STALL_PICTURE_BYTES]; /* when the job was ended: a line a rank */
    char late[320]; /* the rank that the waiter whose deadline passed waited for */
};

/* The sign of life of one rank. */
struct dpb_stall_sign {
    int64_t note_ns; /* the page's since_ns when last seen, and its step ... */
    uint64_t step;
    int64_t sign_ns;    /* ... and when that changed, or the process was at work: dpb_ran_ns */
    int64_t sampled_ns; /* likewise; 0: not sampled since */
    int64_t cpu_ns;
    uint64_t io_bytes;
};

enum { DPB_TURNS_CPUS = 4096 };

/* ---- the job --------------------------------------------------------------------------------- */

struct dpb_process {
    pid_t pid;                      /* another part's: from its page */
    bool remote;                    /* of another part, which reports the members that follow */
    char state;                     /* of its process, as in struct dpb_proc */
    int64_t heard_ns;               /* when its part last sent a frame, by dpb_ran_ns */
    struct dpb_deadline last_words; /* to the store, once its end is reported; at_ns 0: before */
    uint32_t n_interrupts;          /* signals to its part */
    bool running, killed /* by us */, bye, stuck, lost /* run.survive */;
    bool deserted; /* its part is gone, or is being ended */
    int wait_status;
    int64_t ended_ns, fault_ns;
    char fault[384];
    uint32_t n_warnings_shown;
    char late_in[32]; /* the phase in which stall.c named it late */
    uint32_t late_at; /* the last look that found it late */
    struct dpb_stall_sign sign;
};

struct dpb_job_run {
    const struct dpb_job *job;
    uint32_t n_ranks, n_running;
    char host[64];
    struct dpb_board *board;
    struct dpb_store_server *server;
    struct dpb_process *processes;
    struct pollfd *fds;
    int signal_fd;
    struct dpb_signals signals;
    bool ending, child_ended; /* there may be a process to reap */
    uint64_t memory_kills;    /* dpb_memory_kills when it began */
    int interrupt;            /* the first signal's number */
    uint32_t n_interrupts;
    struct dpb_deadline kill_at, give_up; /* give_up.at_ns is 0 until all are killed */
    int64_t known_ns;                     /* when the job's end was */
    struct dpb_stall_watch stalls;
    struct { /* turns.h */
        struct dpb_turns had;
        bool ready, closed;
        int64_t parked_ns, ran_ns; /* since when; 0: the ranks run. dpb_ran_ns then */
        struct dpb_load_sample went;
        struct dpb_deadline due; /* of run.monitor's next sample within a turn */
        uint8_t cpus[DPB_TURNS_CPUS];
    } turns;
    struct { /* the head's: the post that all parts must confirm */
        uint64_t at, value;
        uint32_t serial, n_missing;
    } confirm;
    /* The head's: dpb_missed_ns at its loop's last turn; its last stop's length and end. */
    int64_t missed_ns, stopped_ns, woke_ns;
    bool was_given_up;      /* the others gave the head up during that stop and reported it */
    int64_t places_told_ns; /* the head's: when it last sent the others where the ranks are */
    struct {
        bool drawn;
        int64_t at_ns; /* of the last line */
    } progress;
};

#endif
