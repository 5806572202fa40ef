mod arrays;
mod files;
mod forms;
mod round_trip;
