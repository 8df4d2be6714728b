/*
 * status.h - the status that a call of dpbench returns.
 *
 * Every plugin needs this header.
 *
 * One list gives the enum, the names and the exit codes of the process. The code that detects an
 * error writes the message, once, by host->fail() (host.h), and returns the status; every caller
 * passes it on unchanged.
 */
#ifndef DPBENCH_STATUS_H
#define DPBENCH_STATUS_H

/* X(NAME, exit code of a process that ends for this reason, meaning) */
#define DPB_STATUS_LIST(X)                         \
    X(OK, 0, "success")                            \
    X(FAILED, 1, "failure at run time")            \
    X(USAGE, 2, "wrong usage or configuration")    \
    X(UNSUPPORTED, 2, "combination not supported") \
    X(DATA, 2, "bad input data")                   \
    X(VERIFICATION, 3, "verification failed")      \
    X(REGRESSION, 4, "regression or threshold")    \
    X(NOT_STEADY, 5, "not steady")                 \
    X(TIMEOUT, 1, "deadline passed")               \
    X(NO_MEMORY, 1, "out of memory")               \
    X(IO, 1, "input or output failed")             \
    X(PEER, 1, "another process of the job ended") \
    X(INTERRUPTED, 130, "interrupted")             \
    X(NOT_DECIDED, 6, "threshold not decided")

typedef enum dpb_status {
#define DPB_STATUS_ENUM(name, exit_code, text) DPB_##name,
    DPB_STATUS_LIST(DPB_STATUS_ENUM)
#undef DPB_STATUS_ENUM
} dpb_status;

/* Returns a status other than DPB_OK to the caller. Not for functions that must undo work. */
#define DPB_TRY(expression)                        \
    do {                                           \
        dpb_status dpb_try_status_ = (expression); \
        if (dpb_try_status_ != DPB_OK)             \
            return dpb_try_status_;                \
    } while (0)

/* Sets a status that is DPB_OK to that of the expression: for the steps before a clean-up. */
#define DPB_THEN(status, expression) \
    do {                             \
        if ((status) == DPB_OK)      \
            (status) = (expression); \
    } while (0)

#endif
