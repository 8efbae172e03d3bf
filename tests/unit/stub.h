/* A function that a test's sources call, and that answers nothing. */
#ifndef STUB_H
#define STUB_H

#define STUB(type, name, ...)                                                                                          \
    type name(__VA_ARGS__)                                                                                             \
    {                                                                                                                  \
        return (type)0;                                                                                                \
    }

#endif
