/* A rank's GPU: selection, context, and checks of a call's memory and stream. */
#ifndef DEVICE_H
#define DEVICE_H

#include "driver.h"

struct device {
    const tutti_host *host;
    const char *who;  /* plug-in name for error messages */
    const char *what; /* versions for error messages, or "" */
    int index;
    CUdevice handle;
    CUcontext context; /* NULL until opened */
};

/* Selects the device named by the rank, or the one of its local rank.  Does not create a context. */
int device_choose(struct device *device, const tutti_group_info *info, const tutti_host *host, const char *who);

/* Retains the device's primary context. */
int device_open(struct device *device);
void device_close(struct device *device);

/* Makes the context current on this thread.  Pass the result to device_leave, which restores the previous one. */
bool device_enter(const struct device *device);
void device_leave(bool entered);

/* Between these calls the thread may query events and allocate while a graph is being captured elsewhere.  Otherwise
 * such calls would invalidate the capture. */
CUstreamCaptureMode device_relax(void);
void device_unrelax(CUstreamCaptureMode mode);

/* A stream's state with respect to graph capture.  Barred: it is the legacy default stream while a blocking stream is
 * being captured; work enqueued there fails and invalidates the capture. */
enum device_capture { DEVICE_NO_CAPTURE, DEVICE_CAPTURED, DEVICE_BARRED };

enum device_capture device_capture(CUstream stream);

/* Checks that op's memory and stream belong to the device; the error message names what does not.  group: its name. */
int device_check(const struct device *device, const tutti_op *op, CUstream stream, const char *group);

/* Translates a driver error. */
int device_failed(const struct device *device, const char *doing, CUresult result);

#endif
