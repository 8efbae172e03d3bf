/* Levels and subsystems of log lines, and the text of TUTTI_LOG. */
#ifndef BASE_LOG_LEVELS_H
#define BASE_LOG_LEVELS_H

#include <stdbool.h>
#include <stddef.h>
#include <tutti/tutti.h>

enum log_level {
    LOG_OFF = -1,
    LOG_ERROR = TUTTI_LOG_ERROR,
    LOG_WARN = TUTTI_LOG_WARN,
    LOG_INFO = TUTTI_LOG_INFO,
    LOG_DEBUG = TUTTI_LOG_DEBUG,
    LOG_UNREAD /* TUTTI_LOG has not been read */
};

/* The parts of the library that a line is about, in the words of users.  PLUGIN stands for all names that plug-ins and
 * programs make up.  docs/logging.md explains each. */
#define LOG_SUBSYSTEM_ROWS(ROW)                                                                                        \
    ROW(INIT, init)                                                                                                    \
    ROW(STORE, store)                                                                                                  \
    ROW(GROUP, group)                                                                                                  \
    ROW(OP, op)                                                                                                        \
    ROW(NET, net)                                                                                                      \
    ROW(SHM, shm)                                                                                                      \
    ROW(MPI, mpi)                                                                                                      \
    ROW(NCCL, nccl)                                                                                                    \
    ROW(CUDA, cuda)                                                                                                    \
    ROW(TRAIN, train)                                                                                                  \
    ROW(PLUGIN, plugin)

#define LOG_SUBSYSTEM_CONSTANT(NAME, name) LOG_##NAME,
enum log_subsystem { LOG_SUBSYSTEM_ROWS(LOG_SUBSYSTEM_CONSTANT) LOG_SUBSYSTEMS };

extern const char *const log_level_names[LOG_DEBUG + 1];
extern const char *const log_subsystem_names[LOG_SUBSYSTEMS];

/* Returns the subsystem of this name.  LOG_PLUGIN for all other names. */
enum log_subsystem log_subsystem_find(const char *name);

/* Parses text such as "info,store:debug".  Items count from left to right.  Returns false if an item is malformed, and
 * writes a sentence about the first one to `wrong`.  The other items count. */
bool log_levels_parse(const char *text, signed char levels[LOG_SUBSYSTEMS], char *wrong, size_t capacity);

#endif
