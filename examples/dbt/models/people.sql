-- What is to be served, as a file for `forebay push`: see publish.
{{ config(
    materialized='external',
    location=env_var('PEOPLE_FILE', 'target/people.parquet')
) }}

select id, name, city, score
from {{ ref('raw_people') }}
