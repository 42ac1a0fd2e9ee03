"""What everything else uses: errors, files, paths, progress, processes, random numbers."""
