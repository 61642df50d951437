# cmake -DSOURCE=<clone> -DOUT=<file> -P write_commit.cmake: writes the source that names the commit of a build, if it is another
# than before. Empty where SOURCE is no clone (an archive of the sources), or git is not there.
set(commit "")
if(EXISTS ${SOURCE}/.git)
  execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT [[
namespace ringzero {
extern const char kBuiltCommit[];
const char kBuiltCommit[] = "@commit@";
}  // namespace ringzero
]] @ONLY)
