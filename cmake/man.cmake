# The manual pages: functions (3) and overviews (7) from the headers, tools (1) from their --help.
find_package(Python3 3.7 QUIET COMPONENTS Interpreter)
if(NOT Python3_Interpreter_FOUND OR CMAKE_CROSSCOMPILING)
  message(STATUS "manual pages: left out, they need python3 and a build for this machine")
  return()
endif()
set(reference ${PROJECT_SOURCE_DIR}/docs/reference)
file(GLOB inputs CONFIGURE_DEPENDS ${reference}/*.py ${PROJECT_SOURCE_DIR}/examples/reference/*.c
  ${PROJECT_SOURCE_DIR}/include/tutti/*.h ${PROJECT_SOURCE_DIR}/include/tutti/train/*.h
  ${PROJECT_SOURCE_DIR}/docs/environment.md)
set(tools "")
foreach(tool tutti-run tutti-info tutti-bench tutti-trace tutti-store-bench tutti-conformance)
  if(TARGET ${tool}) # some are for Linux alone
    list(APPEND tools ${tool})
  endif()
endforeach()
list(TRANSFORM tools REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE programs)
if(TUTTI_FAKE_GPU) # a script, which is no target
  list(APPEND programs ${CMAKE_BINARY_DIR}/bin/tutti-fake-gpu)
  list(APPEND inputs ${CMAKE_BINARY_DIR}/bin/tutti-fake-gpu)
endif()
add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/man/made
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${CMAKE_BINARY_DIR}/man
  COMMAND ${CMAKE_COMMAND} -E env PYTHONDONTWRITEBYTECODE=1 ${Python3_EXECUTABLE} ${reference}/man.py
    ${CMAKE_BINARY_DIR}/man ${programs}
  COMMAND ${CMAKE_COMMAND} -E touch ${CMAKE_BINARY_DIR}/man/made
  DEPENDS ${inputs} ${tools} COMMENT "Writing the manual pages" VERBATIM)
add_custom_target(man ALL DEPENDS ${CMAKE_BINARY_DIR}/man/made)
install(DIRECTORY ${CMAKE_BINARY_DIR}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR} PATTERN made EXCLUDE)
